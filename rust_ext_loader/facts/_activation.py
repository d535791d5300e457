"""
Decide which features of PyO3 a crate is built with.

They say whether the library has the stable ABI. Cargo's feature resolution is
followed over the packages on this disk, whose manifests can be read; tables for
single targets and for build scripts are left out.

Invariant: never claims a feature that may be off. What is overlooked costs one
more build; a wrong claim would load a library into a Python it is not for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..declare import _manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from ._closure import Closure, Package


def pyo3_features(closure: Closure, features: tuple[str, ...]) -> frozenset[str]:
    """
    Features of the package `pyo3` that are on when the closure's crate is built with *features* and its defaults.
    """
    activation = _Activation(closure)
    start = next(iter(closure.packages.values()))
    activation.enable(start, ("default", *features))
    return frozenset(activation.pyo3)


@dataclass
class _Activation:
    closure: Closure
    pyo3: set[str] = field(default_factory=set)
    #: What each package has been told to enable.
    _enabled: dict[Path, set[str]] = field(default_factory=dict)

    def enable(self, package: Package, features: tuple[str, ...]) -> None:
        """
        Switch features of a package on, and with them whatever they imply.
        """
        first = package.directory not in self._enabled
        enabled = self._enabled.setdefault(package.directory, set())
        before = set(enabled)
        _expand(package, features, enabled)
        if not first and enabled == before:
            return
        for dependency in package.dependencies:
            if not dependency.conditional and self._is_active(dependency, enabled):
                self._pass_on(dependency, enabled)

    def _is_active(self, dependency: _manifest.Dependency, enabled: set[str]) -> bool:
        if not dependency.optional:
            return True
        key = dependency.key
        return key in enabled or f"dep:{key}" in enabled or any(item.startswith(f"{key}/") for item in enabled)

    def _pass_on(self, dependency: _manifest.Dependency, enabled: set[str]) -> None:
        prefixes = (f"{dependency.key}/", f"{dependency.key}?/")
        forwarded = {item.partition("/")[2] for item in enabled if item.startswith(prefixes)}
        wanted = {*dependency.features, *forwarded}
        if dependency.package == "pyo3":
            self.pyo3 |= wanted
        if dependency.default_features:
            wanted.add("default")
        for folder in self.closure.target(dependency):
            if (package := self.closure.packages.get(folder)) is not None:
                self.enable(package, tuple(sorted(wanted)))


def _expand(package: Package, features: tuple[str, ...], enabled: set[str]) -> None:
    table = _manifest.table(package.resolved, "features")
    waiting = list(features)
    while waiting:
        feature = waiting.pop()
        if feature in enabled:
            continue
        enabled.add(feature)
        waiting.extend(_manifest.strings(table.get(feature)))
