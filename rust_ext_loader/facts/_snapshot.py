"""
See everything that decides about one extension, at one moment.

A snapshot joins what the rooms below gather: inputs, environment, ABI and, apart
from them, the toolchain. It remembers when looking began and which paths stand for
the facts, so that a record can be made of it.

Invariant: without a toolchain no process is started, and the source key is the
same as with one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import _stat
from . import _abi, _cpu, _environment, _inputs, _toolchain
from ._fingerprint import HOST_GROUPS, Fingerprint, digest_of
from ._seen import Sight

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .._model import ExtensionSpec, PathPackage, Toolchain, Watched
    from ..declare import _discover


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """
    The facts of one extension as they stood.
    """

    spec: ExtensionSpec
    features: tuple[str, ...]
    fingerprint: Fingerprint
    watched: Watched
    packages: tuple[PathPackage, ...]
    #: Files whose content is a fact.
    hashed: frozenset[str]
    #: What undeclared inputs of earlier builds stood for.
    sight: Sight
    abi: _abi.Abi
    toolchain: Toolchain | None
    #: Whether the code is made for the very CPU at hand.
    native: bool
    #: The oldest compiler that will do, if the crates name one.
    rust_version: str | None
    #: The clocks before the first file was looked at.
    began: tuple[int, int]

    @property
    def flavour(self) -> str:
        """
        Short name of toolchain, ABI and flags: builds that may share a target folder.
        """
        facts = self.fingerprint.facts
        flags = {name: value for name, value in facts.items() if name.startswith(_environment.REQUESTED)}
        return digest_of({**self.fingerprint.select(HOST_GROUPS), **flags})[:12]

    @property
    def build_key(self) -> str | None:
        """
        The name of a cache entry, which only a toolchain can tell.
        """
        return None if self.toolchain is None else self.fingerprint.build_key

    def moved_since(self, earlier: Snapshot) -> tuple[str, ...]:
        """
        Names of the packages and facts that are not as they were.
        """
        before = {package.directory: package.digest for package in earlier.packages}
        packages = [package.name for package in self.packages if before.get(package.directory) != package.digest]
        names = self.fingerprint.facts.keys() | earlier.fingerprint.facts.keys()
        facts = [name for name in names if self.fingerprint.facts.get(name) != earlier.fingerprint.facts.get(name)]
        return tuple(sorted(name.partition("/")[2] for name in facts) or packages)


def take(
    spec: ExtensionSpec,
    workspace: _discover.Workspace,
    environment: Mapping[str, str],
    *,
    features: tuple[str, ...] = (),
) -> Snapshot:
    """
    Look once at everything but the toolchain.

    Raises a `RustExtensionError` when the crate or what it depends on cannot be read.
    """
    began = _stat.clocks()
    inputs = _inputs.gather(spec, workspace, features)
    flags = _environment.gather(spec, environment)
    abi = _abi.gather(inputs.pyo3_features)
    facts = {**inputs.gathered.facts, **flags.facts, **abi.facts, **(_cpu.facts() if flags.native else {})}
    return Snapshot(
        spec=spec,
        features=features,
        fingerprint=Fingerprint(facts),
        watched=inputs.gathered.watched | flags.watched,
        packages=inputs.packages,
        hashed=inputs.hashed,
        sight=Sight(str(workspace.root), environment),
        abi=abi,
        toolchain=None,
        native=flags.native,
        rust_version=inputs.rust_version,
        began=began,
    )


def with_toolchain(sources: Snapshot, environment: Mapping[str, str], memo_root: Path | None) -> Snapshot:
    """
    The same facts and the toolchain's.

    Raises `ToolchainMissing` when none is usable.
    """
    spec = sources.spec
    found = _toolchain.probe(
        spec.directory, environment, memo_root, needed_for=spec.module, rust_version=sources.rust_version
    )
    facts = {**sources.fingerprint.facts, **found.gathered.facts}
    return replace(
        sources, fingerprint=Fingerprint(facts), watched=sources.watched | found.gathered.watched, toolchain=found
    )


def while_there_is_no_toolchain(sources: Snapshot, environment: Mapping[str, str]) -> Snapshot | None:
    """
    The same facts, bound to the absence of cargo or of a compiler; `None` if both are there.
    """
    absence = _toolchain.absence(sources.spec.directory, environment)
    return None if absence is None else replace(sources, watched=sources.watched | absence)


def declared_values(spec: ExtensionSpec, environment: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """
    The variables that a crate says its build reads, and their values.
    """
    return _environment.declared_values(spec, environment)
