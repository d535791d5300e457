"""
Answer one request: find the library of a module, and build it first if necessary.

    declaration -> sightings -> decision -> carry it out -> note it

`locate` carries the decision out, and builds if the decision says so; `judge`
only reports it. Both ask `_decide`, so they cannot differ.

Invariant: the library of a declared module matches the current sources, request and
ABI, and the toolchain if its facts were read. A stale library is returned only with a
warning that names the differences. No lock is held when a module is imported.
"""

from __future__ import annotations

import enum
import errno
import os
import warnings
from importlib.machinery import PathFinder
from pathlib import Path

from . import _gather, _note, _settings
from ._decide import Build, Refuse, UseBundled, UseCached
from ._errors import (
    CacheWarning,
    DuplicateModule,
    ExtensionNotFound,
    LibraryMissing,
    ManifestError,
    RustExtensionError,
    StaleExtensionWarning,
    ToolchainMissing,
)
from ._gather import Gatherer, Observed
from ._model import ExtensionSpec, Mode, Readiness, State, Tier, Verdict
from ._request import Request, target_of
from ._sightings import Sightings
from ._values import dataclass, replace
from .cache import _local_copy, _roots, _store
from .declare import _discover
from .files import _staging
from .library import _needed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._decide import Decision
    from ._sightings import History
    from .cache._store import Entry
    from .facts._snapshot import Snapshot
    from .remote._exchange import Pushed
    from .remote._signature import Signer

__all__ = (
    "Changes", "PullOutcome", "Pulled", "Request",
    "changes", "declares", "judge", "locate", "observe", "pull", "push", "repair", "stored",
)  # fmt: skip


def locate(request: Request) -> str:
    """
    The path of the library to load. Builds it first if necessary and if the mode allows a build.

    Raises a `RustExtensionError` whose text says what to do.
    """
    declaration = _declaration(request)
    if isinstance(declaration, ExtensionSpec):
        gatherer = Gatherer(target_of(request, declaration))
        return _carry_out(gatherer.decide(), gatherer)
    return _carry_out(_decide_installed(request, declaration), None)


def judge(request: Request) -> Verdict:
    """
    Where the module would come from. Builds nothing; an error becomes part of the verdict.
    """
    # Checked outside `try`: an unknown mode is a mistake in the call, so it raises.
    _ = request.effective_mode
    try:
        declaration = _declaration(request)
        if isinstance(declaration, ExtensionSpec):
            return _verdict(request.module, Gatherer(target_of(request, declaration)).decide())
        return _verdict(request.module, _decide_installed(request, declaration))
    except RustExtensionError as error:
        return Verdict(request.module, State.BROKEN, Readiness.UNAVAILABLE, None, str(error))


def _declaration(request: Request) -> ExtensionSpec | ExtensionNotFound | None:
    if request.workspace is None:
        return None
    try:
        return _discover.find(request.module, Path(request.workspace))
    except ExtensionNotFound as undeclared:
        return undeclared


def _decide_installed(request: Request, undeclared: ExtensionNotFound | None) -> Decision:
    sightings = Sightings(module=request.module, declaration=undeclared, extra_features=bool(request.features))
    return _gather.decide_installed(request, sightings)


def _carry_out(decision: Decision, gatherer: Gatherer | None) -> str:
    for warning in decision.warnings:
        warnings.warn(StaleExtensionWarning(warning), stacklevel=3)
    if isinstance(decision, Refuse):
        raise decision.error
    if isinstance(decision, UseBundled):
        bundled = decision.bundled
        # For a stale library no record is written, so that every process warns.
        if gatherer is None or bundled.staleness:
            return str(bundled.library)
        return _note.note(gatherer, bundled.library, gatherer.sources, bundled.seen)
    assert gatherer is not None
    if isinstance(decision, UseCached):
        return _note.used(gatherer, decision)
    return _build(decision, gatherer)


def _build(decision: Build, gatherer: Gatherer) -> str:
    if gatherer.target.mode is Mode.FORCE and gatherer.target.request.overlay is None:
        # Child processes accept what this process builds.
        os.environ.setdefault(_settings.FORCE_TOKEN, _staging.unique_name())
    # Imported late: most decisions build nothing, and the modules that build take long to import.
    from ._produce import produce

    return produce(gatherer, decision.facts.for_editing(decision.edit))


def _verdict(module: str, decision: Decision) -> Verdict:
    if isinstance(decision, UseBundled):
        library = str(decision.bundled.library)
        return Verdict(module, decision.state, Readiness.READY, library, decision.why)
    if isinstance(decision, UseCached):
        library, tier = str(decision.entry.library), Tier.FULL if decision.edit is None else Tier.EDIT
        return Verdict(module, State.CACHED, Readiness.READY, library, decision.why, tier)
    bundled = None if decision.bundled is None else str(decision.bundled.library)
    readiness = Readiness.NEEDS_BUILD if isinstance(decision, Build) else Readiness.UNAVAILABLE
    return Verdict(module, decision.state, readiness, bundled, decision.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """
    What changed since a checkout last used a module.
    """

    history: History
    #: Why the toolchain's facts are left out, if they are.
    missing: ToolchainMissing | None


def changes(request: Request) -> Changes:
    """
    What changed since this checkout last used the module. Without a toolchain, only the other facts are compared.
    """
    gatherer = _declared(request)
    observed = gatherer.observed
    return Changes(history=_gather.history(gatherer.target, observed.facts), missing=observed.missing)


def observe(request: Request) -> Observed:
    """
    Every fact of a declared extension; without a usable toolchain, every fact but the toolchain's.
    """
    return _declared(request).observed


def stored(request: Request) -> Entry | None:
    """
    The cache entry of the current facts, with its digest verified. Without a toolchain, an entry of any toolchain.
    """
    gatherer = _declared(request)
    if gatherer.observed.missing is not None:
        return _gather.cached_by_any_toolchain(gatherer.target, gatherer.sources)
    return _gather.cached(gatherer.target, gatherer.observed.facts)


class PullOutcome(enum.Enum):
    """
    Where a pull found the entry.
    """

    #: The local cache had it.
    PRESENT = "present"
    #: The remote had it, and now the local cache has it too.
    PULLED = "pulled"
    #: Neither had it.
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """
    The result of a pull. The entry is `None` if it is absent.
    """

    outcome: PullOutcome
    entry: Entry | None


def pull(request: Request) -> Pulled:
    """
    Fetch the entry of the current facts from the remote, unless the local cache has it. Builds nothing.

    Raises `CacheUnavailable`, `RemoteUnavailable`, `SettingError`, `ToolchainMissing` or `OSError`.
    """
    from .remote import _exchange

    gatherer = _declared(request)
    target = gatherer.target
    # A missing remote is reported first: without one a toolchain would not help.
    settings = _exchange.required_remote(target)
    facts = _required_facts(gatherer)
    here = _gather.cached(target, facts)
    if here is not None:
        return Pulled(outcome=PullOutcome.PRESENT, entry=here)
    root = _roots.required_writable(request.cache_dir, target.environment)
    entry = _exchange.pull(target, facts, root, settings, _exchange.COMMAND_TIMEOUT)
    return Pulled(outcome=PullOutcome.ABSENT if entry is None else PullOutcome.PULLED, entry=entry)


def push(request: Request, signer: Signer) -> Pushed:
    """
    Sign the entry of the current facts and publish it at the remote.

    Raises `ExtensionNotFound`, `RemoteUnavailable`, `SettingError` or `ToolchainMissing`.
    """
    from .remote import _exchange

    gatherer = _declared(request)
    _exchange.check_signer(gatherer.target, signer)
    entry = _gather.cached(gatherer.target, _required_facts(gatherer))
    return _exchange.push(gatherer.target, entry, signer)


def _required_facts(gatherer: Gatherer) -> Snapshot:
    if gatherer.observed.missing is not None:
        raise gatherer.observed.missing
    return gatherer.observed.facts


def _declared(request: Request) -> Gatherer:
    if request.workspace is None:
        raise ExtensionNotFound(request.module, "no workspace is known", "pass `workspace=`")
    return Gatherer(target_of(request, _discover.find(request.module, Path(request.workspace))))


def declares(module: str, workspace: str, path: Sequence[str] | None) -> bool:
    """
    Whether a workspace declares this module. A broken manifest is reported only if no other finder provides the name.
    """
    if not os.path.isdir(workspace):
        if PathFinder.find_spec(module, path) is None:
            gone = (
                f"{module}: the workspace of its editable install does not exist ({workspace}); "
                "if it was moved, install the project again"
            )
            warnings.warn(StaleExtensionWarning(gone), stacklevel=2)
        return False
    try:
        _discover.find(module, Path(workspace))
    except DuplicateModule:
        return True
    except ExtensionNotFound:
        return False
    except ManifestError:
        if PathFinder.find_spec(module, path) is not None:
            return False
        raise
    return True


def repair(request: Request, library: str, error: ImportError) -> str:
    """
    Another library in place of a cached one that the dynamic linker refused.

    A bundled library is not replaced, and mode `never` builds nothing. If a shared library that the module needs is
    missing, the module is rebuilt once: that helps if the needed library was renamed. If the rebuilt module lacks the
    same library, it is not rebuilt again.

    Raises `LibraryMissing` if a needed library is still missing, and otherwise *error*.
    """
    if not os.path.lexists(library):
        # Garbage collection removed it between the look-up and the load; look again.
        return locate(request)
    if os.strerror(errno.ESTALE) in str(error):
        # A stale handle of a network file system: opening the path again gets a new one.
        return library
    missing = _needed.missing(Path(library))
    if _local_copy.quarantine(Path(library)):
        return locate(request)
    root = _root_of(request, library)
    if root is not None and request.effective_mode is not Mode.NEVER and not _rebuilt_before(root, library, missing):
        # On a noexec mount the library is not damaged, and other hosts may use it, so it is not quarantined.
        if _roots.may_serve(root):
            _store.quarantine_library(root, Path(library))
        warnings.warn(CacheWarning(f"{library} cannot be loaded ({error}); rebuilding it"), stacklevel=2)
        # From scratch: the build output that the library was copied from may be damaged as well.
        library = locate(replace(request, from_scratch=True))
        missing = _needed.missing(Path(library))
        if not missing:
            return library
    if missing:
        raise LibraryMissing(request.module, library, missing) from error
    raise error


def _root_of(request: Request, library: str) -> Path | None:
    """
    The cache root that holds a library; `None` for one that is bundled.
    """
    for root in _settings.read_roots(request.cache_dir, request.environment):
        if library.startswith(os.path.join(root, "artifacts") + os.sep):
            return Path(root)
    return None


def _rebuilt_before(root: Path, library: str, missing: tuple[str, ...]) -> bool:
    """
    Whether a rebuild has already failed to supply these missing libraries.
    """
    quarantined = _store.quarantined_before(root, Path(library)) if missing else []
    return any(_needed.missing(old) == missing for old in quarantined)
