"""
Answer the questions of `_decide` for one request, each at most once.

Invariant: nothing here builds, writes a record or changes an entry. A look-up has two
side effects: a damaged entry is quarantined, and the first writable root is created,
because the answer of the toolchain probe is kept there.
"""

from __future__ import annotations

import sys
from functools import cached_property
from importlib.machinery import PathFinder

from . import _settings, _warm
from ._decide import decide
from ._errors import ToolchainMissing
from ._model import Mode, Tier
from ._sightings import BundledLibrary, EditTier, History, Question, Sightings
from ._values import dataclass, replace
from .cache import _bundled, _checkouts, _roots, _store
from .declare import _discover, _edit_tier
from .facts import _snapshot
from .facts._fingerprint import SEEN, TIER, TIER_EDIT, TOOLCHAIN, Fingerprint, explain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ._decide import Decision
    from ._request import Request, Target
    from .facts._fingerprint import Change
    from .facts._snapshot import Snapshot


def parent_folders(module: str) -> list[str]:
    """
    Folders in which `import` would look for the module, found without importing anything.
    """
    folders: list[str] | None = None if "." in module else sys.path
    parts = module.split(".")[:-1]
    for length in range(1, len(parts) + 1):
        imported = sys.modules.get(".".join(parts[:length]))
        if imported is not None:
            folders = list(getattr(imported, "__path__", ()))
            continue
        # Looked up by the last part of its name: with the full name, a namespace package would need its parent
        # imported.
        spec = PathFinder.find_spec(parts[length - 1], folders)
        if spec is None or spec.submodule_search_locations is None:
            return []
        folders = list(spec.submodule_search_locations)
    return list(_warm.folders_of(folders or []))


def take_sources(target: Target) -> Snapshot:
    """
    Read every fact but the toolchain's.

    Raises a `RustExtensionError` when the crate or its dependencies cannot be read.
    """
    workspace = _discover.read_workspace(target.spec.workspace)
    return _snapshot.take(target.spec, workspace, target.environment, features=target.request.features)


def take_facts(target: Target) -> Snapshot:
    """
    Read every fact. A build reads them again, to detect changes during the build.

    Raises `ToolchainMissing`, or another `RustExtensionError` when the crate or its dependencies cannot be read.
    """
    return with_toolchain(target, take_sources(target))


def with_toolchain(target: Target, sources: Snapshot) -> Snapshot:
    """
    The facts *sources* with the toolchain's added; raises `ToolchainMissing`.
    """
    return _snapshot.with_toolchain(sources, target.environment, notes_root(target))


def notes_root(target: Target) -> Path | None:
    """
    The root for records and other files that only save time; `None` if no root can be written.
    """
    return _roots.prepare_first_writable(target.request.cache_dir, target.environment)


def cached(
    target: Target, facts: Snapshot, accept: Callable[[_store.Entry], bool] = lambda _: True
) -> _store.Entry | None:
    """
    The accepted entry with exactly these facts, whose undeclared inputs are unchanged.
    """
    roots = _roots.readable(target.request.cache_dir, target.environment)
    return _store.look_up(
        roots,
        target.spec.module,
        facts.fingerprint,
        lambda found: facts.current_inputs.match(found.seen) and accept(found),
    )


def cached_by_any_toolchain(target: Target, sources: Snapshot) -> _store.Entry | None:
    """
    The newest entry with these facts, ignoring the toolchain's.
    """
    return _store.look_up_ignoring(
        _roots.readable(target.request.cache_dir, target.environment),
        target.spec.module,
        sources.fingerprint,
        TOOLCHAIN,
        lambda found: sources.current_inputs.match(found.seen),
    )


def edit_settings(target: Target) -> _edit_tier.EditSettings | None:
    """
    The settings of the edit tier; `None` if this request is never built in it.

    Raises `ManifestError` or `SettingError`.
    """
    request = target.request
    # Cargo compiles the profile `dev` incrementally already.
    if request.full or request.features or target.mode is Mode.FORCE or target.spec.profile == "dev":
        return None
    if not _settings.edit_tier(target.environment):
        return None
    return _edit_tier.settings_of(target.spec.workspace)


def history(target: Target, now: Snapshot) -> History:
    """
    What changed since this checkout last used the module. Toolchain facts are compared only if *now* has them.
    """
    cache_dir, environment = target.request.cache_dir, target.environment
    roots = _roots.readable(cache_dir, environment)
    found = History(
        unusable_roots=tuple(_roots.unusable(cache_dir, environment)),
        # Only a refusal reports a damaged entry, and the search reads every entry of these sources.
        damaged=_store.damaged(roots, target.spec.module, now.fingerprint) if target.mode is Mode.NEVER else None,
    )
    for root in filter(None, [notes_root(target), *roots]):
        known = _checkouts.recall(root, target.spec.workspace, target.spec.module)
        if known is not None:
            return replace(
                found,
                changes=tuple(_changes(known, now)),
                used_before=True,
                tier=Tier.EDIT if TIER_EDIT in known else Tier.FULL,
                compiled_here=now.toolchain is not None and _has_compiled(target, now),
            )
    return found


def _changes(known: dict[str, str], now: Snapshot) -> list[Change]:
    old = Fingerprint(known).without(TIER)
    if now.toolchain is None:
        old = Fingerprint(old).without(TOOLCHAIN)
    seen = {name: value for name, value in known.items() if name.startswith(f"{SEEN}/")}
    return explain(old, {**now.fingerprint.without(TIER), **now.current_inputs.values_of(seen)})


def _has_compiled(target: Target, now: Snapshot) -> bool:
    # Imported late: only a miss asks.
    from .build import _target_state

    root = notes_root(target)
    if root is None:
        return False
    state = _target_state.TargetState(_target_state.target_folder(root, now), target.spec.profile)
    return state.has_compiled(target.spec.directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """
    All facts. If no toolchain is usable: all facts but the toolchain's, and the reason.
    """

    facts: Snapshot
    missing: ToolchainMissing | None = None


class Gatherer:
    """
    Looks up what `decide` asks about one declared extension.
    """

    def __init__(self, target: Target) -> None:
        self.target = target

    @cached_property
    def folders(self) -> list[str]:
        """
        Folders in which `import` would look for the module.
        """
        return parent_folders(self.target.spec.module)

    @cached_property
    def bundled(self) -> _bundled.Bundled | None:
        """
        The library in the package's folder. A request with extra features never uses it.
        """
        return None if self.target.request.features else _bundled.find(self.target.spec.leaf, self.folders)

    @cached_property
    def sources(self) -> Snapshot:
        """
        Every fact but the toolchain's.
        """
        return take_sources(self.target)

    @cached_property
    def observed(self) -> Observed:
        """
        Every fact; without a usable toolchain, every fact but the toolchain's.
        """
        try:
            return Observed(facts=with_toolchain(self.target, self.sources))
        except ToolchainMissing as missing:
            return Observed(facts=self.sources, missing=missing)

    def decide(self) -> Decision:
        """
        Answer the questions of `decide` until it returns a decision.
        """
        sightings = Sightings(module=self.target.spec.module, declaration=self.target.declared)
        while isinstance(outcome := decide(sightings, self.target.mode), Question):
            sightings = self._answer(outcome, sightings)
        return outcome

    def _answer(self, question: Question, sightings: Sightings) -> Sightings:
        match question:
            case Question.BUNDLED:
                return replace(sightings, bundled=self._bundled_library())
            case Question.FACTS:
                return replace(sightings, facts=self.observed.missing or self.observed.facts)
            case Question.CACHED:
                return replace(sightings, cached=cached(self.target, self.observed.facts))
            case Question.CACHED_BY_ANY_TOOLCHAIN:
                return replace(sightings, cached_by_any_toolchain=cached_by_any_toolchain(self.target, self.sources))
            case Question.EDIT_TIER:
                return replace(sightings, edit_tier=self._edit_tier())
            case Question.HISTORY:
                # If the question `FACTS` was not asked, as in mode `never`, the toolchain is not run.
                now = self.observed.facts if "observed" in vars(self) else self.sources
                return replace(sightings, history=history(self.target, now))
            case Question.STALE_IS_ERROR:
                return replace(sightings, stale_is_error=_settings.stale_is_error(self.target.environment))

    def _edit_tier(self) -> EditTier | None:
        settings = edit_settings(self.target)
        if settings is None:
            return None
        # As for `HISTORY`: without the toolchain's facts, an entry of any toolchain counts.
        if "observed" in vars(self) and self.observed.missing is None:
            return EditTier(settings=settings, entry=cached(self.target, self.observed.facts.for_editing(settings)))
        sources = self.sources.for_editing(settings)
        return EditTier(settings=settings, entry=cached_by_any_toolchain(self.target, sources))

    def _bundled_library(self) -> BundledLibrary | None:
        if self.bundled is None:
            return None
        described = _bundled.describe(self.bundled.library, self.target.spec.leaf)
        return BundledLibrary(
            library=self.bundled.library,
            rivals=self.bundled.rivals,
            staleness=_bundled.differences(described, self.sources.fingerprint, self.sources.current_inputs),
            seen=described.seen if described else {},
        )


def decide_installed(request: Request, sightings: Sightings) -> Decision:
    """
    The decision on a module that no workspace declares.
    """
    outcome = decide(sightings, request.effective_mode)
    if isinstance(outcome, Question):
        found = _bundled.find(request.leaf, parent_folders(request.module))
        library = None if found is None else BundledLibrary(library=found.library, rivals=found.rivals, seen={})
        outcome = decide(replace(sightings, bundled=library), request.effective_mode)
    assert not isinstance(outcome, Question)
    return outcome
