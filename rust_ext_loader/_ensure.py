"""
The one story: which library is a module, and how it comes to exist.

    declared? -> bundled and right -> cached -> lock -> look again -> pull -> build -> publish

`locate` tells it to the end, building if the mode allows; `judge` tells it up to
the point where a compiler would be called. What is found is noted in a record,
so that the next process need not ask again.

Invariant: a library is returned only if it was made from the facts as they are
now, or else with a warning that names what differs. The lock is released before
anything is imported.
"""

from __future__ import annotations

import errno
import os
import warnings
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path

from . import _settings
from ._case import Case, Request, parent_folders
from ._errors import (
    CacheWarning,
    DuplicateModule,
    ExtensionNotFound,
    LibraryMissing,
    ManifestError,
    RustExtensionError,
    StaleExtension,
    StaleExtensionWarning,
    ToolchainMissing,
)
from ._model import State, Verdict
from .cache import _bundled, _local_copy, _roots, _store
from .declare import _discover
from .facts import _snapshot
from .facts._fingerprint import reason, summary
from .files import _staging
from .library import _needed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._model import ExtensionSpec
    from .cache._store import Entry
    from .facts._fingerprint import Change
    from .facts._snapshot import Snapshot
    from .remote._exchange import Pushed
    from .remote._signature import Signer

__all__ = ("Moved", "Request", "changes", "declares", "judge", "locate", "pull", "push", "repair", "snapshot", "stored")


def locate(request: Request) -> str:
    """
    The library to load, built if it must be and may be.

    Raises a `RustExtensionError` that says what to do.
    """
    mode = _settings.build_mode(request.mode, request.environment)
    spec = _declared(request, mode)
    if spec is None:
        return _installed(request, mode)
    return _Story(Case(request, mode, spec)).tell()


def judge(request: Request) -> Verdict:
    """
    Where the module would come from, without building and without raising for what is wrong with it.
    """
    mode = _settings.build_mode(request.mode, request.environment)
    try:
        spec = _declared(request, mode)
        if spec is not None:
            return _Story(Case(request, mode, spec)).judge()
        library = _installed(request, mode)
    except ExtensionNotFound as error:
        return Verdict(request.module, State.UNDECLARED, False, False, None, str(error))
    except RustExtensionError as error:
        return Verdict(request.module, State.BROKEN, False, False, None, str(error))
    return Verdict(request.module, State.BUNDLED, True, False, library, "installed with its package")


@dataclass(frozen=True, slots=True)
class Moved:
    """
    What moved since a checkout last used a module.
    """

    changes: list[Change]
    #: Whether it has used it before.
    known: bool
    #: Why the toolchain's facts are left out, if they are.
    missing: ToolchainMissing | None


def changes(request: Request) -> Moved:
    """
    What moved since this checkout last used the module; without a toolchain, of all the rest.
    """
    case = _case(request)
    now, missing = case.told
    return Moved(*case.changes(now), missing)


def snapshot(request: Request) -> tuple[Snapshot, ToolchainMissing | None]:
    """
    Every fact of a declared extension as it is now; where no toolchain is usable, without its facts and with the reason.
    """
    return _case(request).told


def stored(request: Request) -> Entry | None:
    """
    The cache entry of what there is now, verified to its last byte; without a toolchain, of whichever one made it.
    """
    case = _case(request)
    now, missing = case.told
    return case.entry(now) if missing is None else case.entry_of_any_toolchain()


def pull(request: Request) -> tuple[Entry | None, bool]:
    """
    The cache entry of what there is now, fetched from the remote if it is not here; and whether it was fetched. Builds nothing.
    """
    from .remote import _exchange

    case = _case(request)
    settings, here = _exchange.required_remote(case), case.entry(case.snapshot)
    if here is not None:
        return here, False
    return _exchange.pull(case, case.snapshot, settings, _exchange.PATIENCE_OF_COMMAND), True


def push(request: Request, signer: Signer) -> Pushed:
    """
    Publish the cache entry of what there is now at the remote.
    """
    from .remote import _exchange

    return _exchange.push(_case(request), signer)


def _case(request: Request) -> Case:
    mode = _settings.build_mode(request.mode, request.environment)
    return Case(request, mode, _discover.find(request.module, Path(_required_workspace(request))))


def declares(module: str, workspace: str, path: Sequence[str] | None) -> bool:
    """
    Whether a workspace makes this module; what is wrong with it is reported only if nothing else provides the name.
    """
    if not os.path.isdir(workspace):
        if PathFinder.find_spec(module, path) is None:
            gone = f"{module}: the workspace of its editable install is gone ({workspace}); if it has moved, install the project again"
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

    A bundled library's error is its own, and in mode `never` nothing can be done. What lacks another library is built once
    more, which helps where that one has a new name by now; if the result lacks the same, nobody builds it again for that.
    """
    if not os.path.lexists(library):
        # Collected between the look and the load; a second look finds that out, and what there is instead.
        return locate(request)
    if os.strerror(errno.ESTALE) in str(error):
        # A network file system forgot what it knew; it looks again when it is asked again.
        return library
    mode = _settings.build_mode(request.mode, request.environment)
    missing = _needed.missing(Path(library))
    if _local_copy.set_aside(Path(library)):
        return locate(request)
    for root in _settings.read_roots(request.cache_dir, request.environment):
        artifacts = os.path.join(root, "artifacts") + os.sep
        if mode != "never" and library.startswith(artifacts) and not _was_in_vain(Path(root), Path(library), missing):
            # On a noexec mount it is sound, and serves others.
            if _roots.may_serve(Path(root)):
                _store.quarantine_library(Path(root), Path(library))
            warnings.warn(CacheWarning(f"{library} cannot be loaded ({error}); it is built anew"), stacklevel=2)
            # What it was copied from may be as wrong as the copy.
            library = locate(replace(request, from_scratch=True))
            missing = _needed.missing(Path(library))
            if not missing:
                return library
            break
    if missing:
        raise LibraryMissing(request.module, library, missing) from error
    raise error


def _was_in_vain(root: Path, library: Path, missing: tuple[str, ...]) -> bool:
    """
    Whether a library that lacks others is what came of building anew another one that lacked the same.
    """
    return bool(missing) and any(_needed.missing(old) == missing for old in _store.set_aside_before(root, library))


def _required_workspace(request: Request) -> str:
    if request.workspace is None:
        raise ExtensionNotFound(request.module, "no workspace is known that could declare it", "name one")
    return request.workspace


def _declared(request: Request, mode: str) -> ExtensionSpec | None:
    """
    The declaration of the module, or `None` when it can only be an installed one.
    """
    if request.workspace is None:
        return None
    try:
        return _discover.find(request.module, Path(request.workspace))
    except ExtensionNotFound:
        if mode != "force" and not request.features and _bundled.find(request.leaf, parent_folders(request.module)):
            return None
        raise


def _installed(request: Request, mode: str) -> str:
    bundled = _bundled.find(request.leaf, parent_folders(request.module))
    if mode == "force":
        raise ExtensionNotFound(
            request.module,
            "mode `force` builds from source, and no workspace is known that declares it",
            "pass `workspace=`, or install the project editable",
        )
    if request.features:
        raise ExtensionNotFound(
            request.module,
            "extra features need a build, and no workspace is known that declares it",
            "pass `workspace=`",
        )
    if bundled is None:
        raise ExtensionNotFound(
            request.module,
            "it is not installed, and no workspace is known that declares it",
            "pass `workspace=`, or install the project editable or a wheel that has it",
        )
    _warn_of_others(request.module, bundled)
    return str(bundled.library)


def _warn_of_others(module: str, bundled: _bundled.Bundled) -> None:
    if bundled.others:
        names = ", ".join(map(str, bundled.others))
        warnings.warn(
            StaleExtensionWarning(f"{module}: {bundled.library} is used; remove what lies beside it: {names}"),
            stacklevel=3,
        )


@dataclass(frozen=True, slots=True)
class _Story:
    """
    What the modes make of one case.
    """

    case: Case

    def tell(self) -> str:
        if self.case.mode == "force":
            return self._force()
        if self.case.bundled is not None:
            _warn_of_others(self.case.spec.module, self.case.bundled)
        return self._never() if self.case.mode == "never" else self._auto()

    def judge(self) -> Verdict:
        bundled = str(self.case.bundled.library) if self.case.bundled else None
        if self.case.mode == "force":
            return self._judge_force(bundled)
        if self.case.bundled and not self.case.staleness:
            return self._verdict(State.BUNDLED, True, bundled, "its sidecar says: these sources, this ABI")
        entry = self._entry_for_judgement()
        if bundled and self.case.mode == "never":
            return self._verdict(State.STALE, True, bundled, "; ".join(self.case.staleness[:3]))
        if entry is not None:
            return self._verdict(State.CACHED, True, str(entry.library), self._provenance(entry))
        if self.case.mode == "never":
            return self._verdict(State.MISSING, False, None, str(self._not_to_be_built()))
        now, missing = self.case.told
        moved, known = self.case.changes(now)
        state = State.STALE if known or bundled else State.MISSING
        why = self._why_not(moved, known)
        if missing is None:
            return Verdict(self.case.spec.module, state, False, True, bundled, why)
        usable = bundled is not None and not _settings.stale_is_error(self.case.environment)
        return self._verdict(state, usable, bundled, f"{why}; {missing.complaint}")

    def _why_not(self, moved: list[Change], known: bool) -> str:
        if self.case.bundled and not known:
            return "; ".join(self.case.staleness[:3])
        return "; ".join([reason(moved, known=known), *self.case.closed_roots])

    def _provenance(self, entry: _store.Entry) -> str:
        if self.case.mode != "never" and self.case.told[1] is None:
            return "built from these facts"
        return f"built from these sources, by rustc {entry.facts.get('toolchain/rustc', '(unknown)')}"

    def _judge_force(self, bundled: str | None) -> Verdict:
        now, missing = self.case.told
        known = self.case.changes(now)[1]
        state = State.STALE if known or bundled else State.MISSING
        if missing is not None:
            return self._verdict(state, False, bundled, f"mode `force` builds it anew; {missing.complaint}")
        return Verdict(self.case.spec.module, state, False, True, bundled, "mode `force` builds it anew")

    def _entry_for_judgement(self) -> _store.Entry | None:
        if self.case.mode != "never" and self.case.told[1] is None:
            return self.case.entry(self.case.snapshot)
        return self.case.entry_of_any_toolchain()

    def _verdict(self, state: State, ready: bool, library: str | None, why: str) -> Verdict:
        return Verdict(self.case.spec.module, state, ready, False, library, why)

    def _auto(self) -> str:
        if self.case.bundled and not self.case.staleness:
            return self.case.use(self.case.bundled.library, self.case.sources, self.case.seen_of_bundled)
        try:
            now = self.case.snapshot
        except ToolchainMissing as missing:
            return self._without_toolchain(missing)
        if self.case.bundled:
            self._warn_of_stale("is left aside")
        entry = self.case.entry(now)
        return self.case.use(entry.library, now, entry.seen) if entry else self._produce(now)

    def _produce(self, now: Snapshot) -> str:
        # Most decisions build nothing, and what builds takes long to import.
        from ._produce import produce

        return produce(self.case, now)

    def _without_toolchain(self, missing: ToolchainMissing) -> str:
        entry = self.case.entry_of_any_toolchain()
        if entry is not None:
            bound = None
            # What a toolchain that is there says of itself may be mended without a trace that could be watched.
            if missing.problem == "missing":
                bound = _snapshot.while_there_is_no_toolchain(self.case.sources, self.case.environment)
            return self.case.use(entry.library, bound, entry.seen) if bound else str(entry.library)
        if self.case.bundled is None:
            moved, known = self.case.changes(self.case.sources)
            raise missing.because(self._why_not(moved, known)) from None
        if _settings.stale_is_error(self.case.environment):
            raise StaleExtension(
                self.case.spec.module, str(self.case.bundled.library), self.case.staleness
            ) from missing
        self._warn_of_stale("is used all the same, since there is no toolchain")
        return str(self.case.bundled.library)

    def _never(self) -> str:
        if self.case.bundled:
            if self.case.staleness:
                self._warn_of_stale("is used all the same, since the mode is `never`")
                return str(self.case.bundled.library)
            return self.case.use(self.case.bundled.library, self.case.sources, self.case.seen_of_bundled)
        entry = self.case.entry_of_any_toolchain()
        if entry is None:
            raise self._not_to_be_built()
        return self.case.use(entry.library, self.case.sources, entry.seen)

    def _not_to_be_built(self) -> ExtensionNotFound:
        broken = _store.damaged(self.case.roots, self.case.spec.module, self.case.sources.fingerprint)
        moved, _ = self.case.changes(self.case.sources)
        built = f"it is not built from what is here now ({summary(moved)})" if moved else "it is not built"
        what = f"its cached copy was damaged (see {broken})" if broken else "; ".join([built, *self.case.closed_roots])
        return ExtensionNotFound(
            self.case.spec.module,
            f"{what}, and {_settings.BUILD_MODE}=never forbids building it",
            f"run `rust-ext build {self.case.spec.module}` or set {_settings.BUILD_MODE}=auto",
        )

    def _force(self) -> str:
        if self.case.request.overlay is None:
            # Children of this process accept what it built.
            os.environ.setdefault(_settings.FORCE_TOKEN, _staging.unique_name())
        return self._produce(self.case.snapshot)

    def _warn_of_stale(self, fate: str) -> None:
        assert self.case.bundled is not None
        differs = "; ".join(self.case.staleness[:3])
        text = (
            f"{self.case.spec.module}: {self.case.bundled.library} {fate}; it was built from something else ({differs})"
        )
        warnings.warn(StaleExtensionWarning(text), stacklevel=2)
