"""
Decide what one request gets: the bundled library, a cached one, a build, or an error.

`decide` reads *sightings*: everything that has been looked up so far. It returns
a decision, or the question that must be answered first. It asks the cheap
questions first: a fresh bundled library is used without a toolchain.

Invariant: pure. Nothing here reads the disk, the environment or the clock, so
the table of modes and situations is tested without any of them.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from . import _warm
from ._errors import ExtensionNotFound, StaleExtension, ToolchainMissing
from ._model import ExtensionSpec, Mode, State
from ._sightings import BundledLibrary, EditTier, History, Question, Sightings, Unasked
from ._values import dataclass
from .facts._fingerprint import TOOLCHAIN_RUSTC, summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._errors import RustExtensionError
    from .cache._store import Entry
    from .declare._edit_tier import EditSettings
    from .facts._snapshot import Snapshot


class RecordBasis(enum.Enum):
    """
    What a record of a decision depends on: if it changes, the decision is made again.
    """

    #: Every fact, the toolchain's included.
    ALL_FACTS = enum.auto()
    #: Every fact but the toolchain's.
    SOURCES = enum.auto()
    #: Every fact but the toolchain's, and the absence of a toolchain.
    SOURCES_WITHOUT_TOOLCHAIN = enum.auto()
    #: No record is written: the decision depends on something that cannot be watched, or every process must warn.
    NOTHING = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class UseBundled:
    """
    Load the bundled library. A stale one is used without a record, so that every process warns.
    """

    bundled: BundledLibrary
    state: State
    why: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCached:
    """
    Load the library of a cache entry.
    """

    entry: Entry
    basis: RecordBasis
    why: str
    #: The settings of the edit tier, if the entry was built in it.
    edit: EditSettings | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """
    Build the module from these facts.
    """

    facts: Snapshot
    state: State
    why: str
    #: The settings of the edit tier; `None` for the full build.
    edit: EditSettings | None = None
    #: The bundled library, which is not used.
    bundled: BundledLibrary | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """
    Raise an error.
    """

    error: RustExtensionError
    state: State
    why: str
    #: The bundled library, which is not used.
    bundled: BundledLibrary | None = None
    warnings: tuple[str, ...] = ()


_FOR_EDITING = "built for editing from these facts; `rust-ext build` optimises"

Decision: TypeAlias = UseBundled | UseCached | Build | Refuse


def decide(sightings: Sightings, mode: Mode) -> Decision | Question:
    """
    The decision, or the question whose answer is missing.
    """
    if not isinstance(sightings.declaration, ExtensionSpec):
        return _decide_installed(sightings, mode)
    if isinstance(sightings.bundled, Unasked):
        return Question.BUNDLED
    if mode is Mode.FORCE:
        return _decide_force(sightings, sightings.bundled)
    if sightings.bundled is not None and not sightings.bundled.staleness:
        return UseBundled(
            bundled=sightings.bundled,
            state=State.BUNDLED,
            why="its `.rust-ext.json` file matches these sources and this ABI",
            warnings=_rivals(sightings.module, sightings.bundled),
        )
    if mode is Mode.NEVER:
        return _decide_never(sightings, sightings.bundled)
    return _decide_auto(sightings, sightings.bundled)


def _decide_installed(sightings: Sightings, mode: Mode) -> Decision | Question:
    """
    Without a declaration the module can only be an installed one.
    """
    undeclared = sightings.declaration if isinstance(sightings.declaration, ExtensionNotFound) else None
    if mode is Mode.FORCE:
        return _not_found(
            undeclared,
            sightings.module,
            "mode `force` builds from source, and no known workspace declares it",
            "pass `workspace=`, or install the project editable",
        )
    if sightings.extra_features:
        return _not_found(
            undeclared,
            sightings.module,
            "extra features need a build, and no known workspace declares it",
            "pass `workspace=`",
        )
    if isinstance(sightings.bundled, Unasked):
        return Question.BUNDLED
    if sightings.bundled is None:
        return _not_found(
            undeclared,
            sightings.module,
            "it is not installed, and no known workspace declares it",
            "pass `workspace=`, or install the project editable or a wheel that has it",
        )
    return UseBundled(
        bundled=sightings.bundled,
        state=State.BUNDLED,
        why="installed with its package",
        warnings=_rivals(sightings.module, sightings.bundled),
    )


def _not_found(undeclared: ExtensionNotFound | None, module: str, problem: str, advice: str) -> Refuse:
    error = undeclared or ExtensionNotFound(module, problem, advice)
    return Refuse(error=error, state=State.UNDECLARED, why=str(error))


def _decide_force(sightings: Sightings, bundled: BundledLibrary | None) -> Decision | Question:
    if isinstance(sightings.facts, Unasked):
        return Question.FACTS
    if isinstance(sightings.history, Unasked):
        return Question.HISTORY
    state = _state_without_build(sightings.history, bundled)
    if isinstance(sightings.facts, ToolchainMissing):
        why = f"mode `force` rebuilds it; {sightings.facts.complaint}"
        return Refuse(error=sightings.facts, state=state, why=why, bundled=bundled)
    return Build(facts=sightings.facts, state=state, why="mode `force` rebuilds it", bundled=bundled)


def _decide_never(sightings: Sightings, stale: BundledLibrary | None) -> Decision | Question:
    if isinstance(sightings.cached_by_any_toolchain, Unasked):
        return Question.CACHED_BY_ANY_TOOLCHAIN
    entry = sightings.cached_by_any_toolchain
    if entry is not None:
        return UseCached(
            entry=entry,
            basis=RecordBasis.SOURCES,
            why=_by_toolchain(entry),
            warnings=_ignored(sightings.module, stale),
        )
    if isinstance(sightings.edit_tier, Unasked):
        return Question.EDIT_TIER
    tier = sightings.edit_tier
    if tier is not None and tier.entry is not None:
        return _use_entry_for_editing(sightings, stale, tier, tier.entry, "the mode is `never`")
    if stale is not None:
        return _use_stale(sightings, stale, "the mode is `never`", _first_differences(stale))
    if isinstance(sightings.history, Unasked):
        return Question.HISTORY
    error = _not_built(sightings.module, sightings.history)
    return Refuse(error=error, state=State.MISSING, why=str(error))


def _decide_auto(sightings: Sightings, stale: BundledLibrary | None) -> Decision | Question:
    if isinstance(sightings.facts, Unasked):
        return Question.FACTS
    if isinstance(sightings.facts, ToolchainMissing):
        return _decide_without_toolchain(sightings, stale, sightings.facts)
    if isinstance(sightings.cached, Unasked):
        return Question.CACHED
    warnings = _ignored(sightings.module, stale)
    if sightings.cached is not None:
        return UseCached(
            entry=sightings.cached, basis=RecordBasis.ALL_FACTS, why="built from these facts", warnings=warnings
        )
    if isinstance(sightings.edit_tier, Unasked):
        return Question.EDIT_TIER
    tier = sightings.edit_tier
    if tier is not None and tier.entry is not None:
        return UseCached(
            entry=tier.entry,
            basis=RecordBasis.ALL_FACTS,
            why=_FOR_EDITING,
            edit=tier.settings,
            warnings=warnings,
        )
    if isinstance(sightings.history, Unasked):
        return Question.HISTORY
    return Build(
        facts=sightings.facts,
        state=_state_without_build(sightings.history, stale),
        why=_why_build(sightings.history, stale),
        edit=tier.settings if tier is not None and sightings.history.is_edited else None,
        bundled=stale,
        warnings=warnings,
    )


def _decide_without_toolchain(
    sightings: Sightings, stale: BundledLibrary | None, missing: ToolchainMissing
) -> Decision | Question:
    if isinstance(sightings.cached_by_any_toolchain, Unasked):
        return Question.CACHED_BY_ANY_TOOLCHAIN
    entry = sightings.cached_by_any_toolchain
    if entry is not None:
        # A broken toolchain, unlike a missing one, can be repaired without changing a watched file: no record then.
        absent = missing.problem == "missing"
        return UseCached(
            entry=entry,
            basis=RecordBasis.SOURCES_WITHOUT_TOOLCHAIN if absent else RecordBasis.NOTHING,
            why=_by_toolchain(entry),
            warnings=_ignored(sightings.module, stale),
        )
    if isinstance(sightings.edit_tier, Unasked):
        return Question.EDIT_TIER
    tier = sightings.edit_tier
    if tier is not None and tier.entry is not None:
        return _use_entry_for_editing(sightings, stale, tier, tier.entry, "there is no toolchain")
    if isinstance(sightings.history, Unasked):
        return Question.HISTORY
    why = f"{_why_build(sightings.history, stale)}; {missing.complaint}"
    if stale is None:
        state = _state_without_build(sightings.history, stale)
        return Refuse(error=missing.because(_why_build(sightings.history, stale)), state=state, why=why)
    if isinstance(sightings.stale_is_error, Unasked):
        return Question.STALE_IS_ERROR
    if sightings.stale_is_error:
        error = StaleExtension(sightings.module, str(stale.library), stale.staleness)
        error.__cause__ = missing
        return Refuse(error=error, state=State.STALE, why=why, bundled=stale, warnings=_rivals(sightings.module, stale))
    return _use_stale(sightings, stale, "there is no toolchain", why)


def _use_stale(sightings: Sightings, stale: BundledLibrary, reason: str, why: str) -> UseBundled:
    advice = f"run `rust-ext build {sightings.module}`"
    text = f"{_described(sightings.module, stale)} and is used anyway, since {reason}; {advice}"
    return UseBundled(bundled=stale, state=State.STALE, why=why, warnings=(*_rivals(sightings.module, stale), text))


def _use_entry_for_editing(
    sightings: Sightings, stale: BundledLibrary | None, tier: EditTier, entry: Entry, reason: str
) -> UseCached:
    """
    Use an entry of the edit tier where no full build can be made. Every process warns, so no record is written.
    """
    text = (
        f"{sightings.module}: {entry.library} was built for editing and is used anyway, since {reason}; "
        f"run `rust-ext build {sightings.module}` to optimise it"
    )
    return UseCached(
        entry=entry,
        basis=RecordBasis.NOTHING,
        why=_FOR_EDITING,
        edit=tier.settings,
        warnings=(*_ignored(sightings.module, stale), text),
    )


def _ignored(module: str, stale: BundledLibrary | None) -> tuple[str, ...]:
    if stale is None:
        return ()
    return (*_rivals(module, stale), f"{_described(module, stale)} and is ignored; remove the file")


def _described(module: str, stale: BundledLibrary) -> str:
    return f"{module}: {stale.library} is stale ({_first_differences(stale)})"


def _first_differences(stale: BundledLibrary) -> str:
    return "; ".join(stale.staleness[:3])


def _rivals(module: str, bundled: BundledLibrary) -> tuple[str, ...]:
    if not bundled.rivals:
        return ()
    names = ", ".join(map(str, bundled.rivals))
    return (f"{module}: {bundled.library} comes first on the path; remove the other libraries of the module: {names}",)


def _state_without_build(history: History, bundled: BundledLibrary | None) -> State:
    return State.STALE if history.used_before or bundled is not None else State.MISSING


def _why_build(history: History, stale: BundledLibrary | None) -> str:
    """
    Why the module must be built. The differences of a bundled library are the reason only if no build was used before.
    """
    return _first_differences(stale) if stale is not None and not history.used_before else history.why


def _by_toolchain(entry: Entry) -> str:
    return f"built from these sources, by rustc {entry.facts.get(TOOLCHAIN_RUSTC, '(unknown)')}"


def _not_built(module: str, history: History) -> ExtensionNotFound:
    if history.damaged:
        problem = f"its cached copy was damaged (see {history.damaged})"
    elif history.changes:
        problem = f"it is not built from the current sources ({summary([*history.changes])})"
    else:
        problem = "it is not built"
    if not history.damaged:
        problem = "; ".join([problem, *history.unusable_roots])
    return ExtensionNotFound(
        module,
        f"{problem}, and {_warm.BUILD_MODE}=never forbids building it",
        f"run `rust-ext build {module}` or set {_warm.BUILD_MODE}=auto",
    )
