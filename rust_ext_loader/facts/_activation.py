"""
Decide with which features of PyO3 a crate is built.

The features decide whether the library uses the stable ABI. This follows
cargo's feature resolution through the packages on this disk, whose manifests can
be read. It skips tables for single targets and for build scripts. It is
separate from `_inputs`, since feature resolution is a problem in itself.

Invariant: never reports a feature that may be off. A missed feature costs one
more build. A wrongly reported one would load a library into the wrong Python.
"""

from __future__ import annotations

from .._values import dataclass, field
from ..declare import _manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from ._closure import Closure, Package


def pyo3_features(closure: Closure, features: tuple[str, ...]) -> frozenset[str]:
    """
    Features of the package `pyo3` that are on if the closure's crate is built with *features* and its defaults.
    """
    activation = _Activation(closure)
    start = next(iter(closure.packages.values()))
    activation.enable(start, ("default", *features))
    return frozenset(activation.pyo3)


@dataclass
class _Activation:
    closure: Closure
    pyo3: set[str] = field(default_factory=set)
    #: The features enabled so far, by folder of the package.
    _enabled: dict[Path, set[str]] = field(default_factory=dict)

    def enable(self, package: Package, features: tuple[str, ...]) -> None:
        """
        Enable features of a package, and all features that they imply.
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
