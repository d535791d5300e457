"""
Gather all facts about one extension at one moment.

A snapshot joins inputs, environment, ABI and, in a second step, the toolchain.
It also holds the time at which reading began and the paths to watch, so that a
record can be written from it.

Invariant: without a toolchain no process is started, and the source key is the
same as with one.
"""

from __future__ import annotations

from .. import _stat
from .._values import dataclass, replace
from . import _abi, _cpu, _environment, _inputs, _toolchain
from ._fingerprint import HOST_GROUPS, REQUEST_VARIABLE, TIER, TIER_EDIT, Fingerprint, digest_of
from ._seen import CurrentInputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .._model import ExtensionSpec, PathPackage, Toolchain, Watched
    from ..declare import _discover
    from ..declare._edit_tier import EditSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """
    The facts about one extension at one moment.
    """

    spec: ExtensionSpec
    features: tuple[str, ...]
    fingerprint: Fingerprint
    watched: Watched
    packages: tuple[PathPackage, ...]
    #: Files whose content is a fact.
    hashed: frozenset[str]
    #: The current state of undeclared inputs.
    current_inputs: CurrentInputs
    abi: _abi.Abi
    toolchain: Toolchain | None
    #: Whether the code is for the host's own CPU.
    native: bool
    #: The oldest compiler that the crate supports, if it says so.
    rust_version: str | None
    #: Wall clock and monotonic clock, before the first file was read.
    began: tuple[int, int]
    #: The settings of the edit tier; `None` for the full build.
    edit: EditSettings | None = None

    @property
    def flavour(self) -> str:
        """
        Short digest over toolchain, ABI and flags; builds with the same one share a target folder.
        """
        facts = self.fingerprint.facts
        flags = {name: value for name, value in facts.items() if name.startswith(REQUEST_VARIABLE)}
        return digest_of({**self.fingerprint.select(HOST_GROUPS), **flags})[:12]

    @property
    def build_key(self) -> str | None:
        """
        The key of a cache entry; `None` without a toolchain.
        """
        return None if self.toolchain is None else self.fingerprint.build_key

    def for_editing(self, settings: EditSettings | None) -> Snapshot:
        """
        The same facts for a build in the edit tier; with `None`, for the full build.
        """
        facts = self.fingerprint.without(TIER)
        if settings is None:
            return replace(self, fingerprint=Fingerprint(facts), edit=None)
        facts[TIER_EDIT] = settings.canonical
        return replace(self, fingerprint=Fingerprint(facts), watched=self.watched | settings.watched, edit=settings)

    def changed_since(self, earlier: Snapshot) -> tuple[str, ...]:
        """
        Names of the facts that differ from an earlier snapshot; if none does, of the packages that differ.
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
    Gather everything but the toolchain's facts.

    Raises a `RustExtensionError` if the crate or a dependency cannot be read.
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
        current_inputs=CurrentInputs(str(workspace.root), environment),
        abi=abi,
        toolchain=None,
        native=flags.native,
        rust_version=inputs.rust_version,
        began=began,
    )


def with_toolchain(sources: Snapshot, environment: Mapping[str, str], memo_root: Path | None) -> Snapshot:
    """
    The snapshot with the toolchain's facts added.

    Raises `ToolchainMissing` if no toolchain is usable.
    """
    spec = sources.spec
    found = _toolchain.probe(
        spec.directory, environment, memo_root, needed_for=spec.module, rust_version=sources.rust_version
    )
    facts = {**sources.fingerprint.facts, **found.gathered.facts}
    return replace(
        sources, fingerprint=Fingerprint(facts), watched=sources.watched | found.gathered.watched, toolchain=found
    )


def while_toolchain_is_missing(sources: Snapshot, environment: Mapping[str, str]) -> Snapshot | None:
    """
    The snapshot, valid only while cargo or the compiler is missing; `None` if both exist.
    """
    absence = _toolchain.absence(sources.spec.directory, environment)
    return None if absence is None else replace(sources, watched=sources.watched | absence)


def declared_values(spec: ExtensionSpec, environment: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """
    The variables that a crate or cargo's configuration declares as inputs, with their values; `None` if not set.
    """
    return _environment.declared_values(spec, environment)
