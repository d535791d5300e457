"""
The one story: which library is a module, and how it comes to exist.

    declared? -> bundled and right -> cached -> lock -> look again -> build -> publish

`locate` tells it to the end, building if the mode allows; `judge` tells it up to
the point where a compiler would be called. What is found is noted in a record,
so that the next process need not ask again.

Invariant: a library is returned only if it was made from the facts as they are
now, or else with a warning that names what differs. The lock is released before
anything is imported.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
import uuid
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.machinery import PathFinder
from pathlib import Path

from . import _build, _bundled, _discover, _locks, _record, _settings, _snapshot, _staging, _store
from ._errors import (
    CacheUnavailable,
    CacheWarning,
    DuplicateModule,
    ExtensionNotFound,
    ManifestError,
    RustExtensionError,
    StaleExtension,
    StaleExtensionWarning,
    ToolchainMissing,
)
from ._fingerprint import SHORT, Change, explain, summary
from ._model import ExtensionSpec, State, Verdict
from ._progress import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Request:
    """
    What somebody asks for.
    """

    module: str
    mode: str | None = None
    workspace: str | None = None
    cache_dir: str | None = None
    features: tuple[str, ...] = ()
    #: Overlays the process's environment.
    overlay: Mapping[str, str] | None = None
    #: With mode `force`: accept nothing that anybody else built.
    always: bool = False
    #: If it must be built: believe nothing that was compiled before.
    from_scratch: bool = False

    @property
    def environment(self) -> Mapping[str, str]:
        """
        The environment from which facts are read.
        """
        return {**os.environ, **self.overlay} if self.overlay else os.environ

    @property
    def leaf(self) -> str:
        """
        Last part of the module's name.
        """
        return self.module.rpartition(".")[2]


def locate(request: Request) -> str:
    """
    The library to load, built if it must be and may be.

    Raises a `RustExtensionError` that says what to do.
    """
    mode = _settings.build_mode(request.mode, request.environment)
    spec = _declared(request, mode)
    if spec is None:
        return _installed(request, mode)
    return _Story(request, mode, spec).tell()


def judge(request: Request) -> Verdict:
    """
    Where the module would come from, without building and without raising for what is wrong with it.
    """
    mode = _settings.build_mode(request.mode, request.environment)
    try:
        spec = _declared(request, mode)
        if spec is not None:
            return _Story(request, mode, spec).judge()
        library = _installed(request, mode)
    except ExtensionNotFound as error:
        return Verdict(request.module, State.UNDECLARED, False, False, None, str(error))
    except RustExtensionError as error:
        return Verdict(request.module, State.BROKEN, False, False, None, str(error))
    return Verdict(request.module, State.BUNDLED, True, False, library, "installed with its package")


def changes(request: Request) -> tuple[list[Change], bool]:
    """
    What moved since this checkout last used the module, and whether it has used it before.
    """
    spec = _discover.find(request.module, Path(_required_workspace(request)))
    story = _Story(request, _settings.build_mode(request.mode, request.environment), spec)
    return story.changes(story.snapshot)


def snapshot(request: Request) -> Snapshot:
    """
    Every fact of a declared extension as it is now, the toolchain's included.
    """
    spec = _discover.find(request.module, Path(_required_workspace(request)))
    return _Story(request, "auto", spec).snapshot


def declares(module: str, workspace: str, path: Sequence[str] | None) -> bool:
    """
    Whether a workspace makes this module; a broken manifest is reported only if nothing else provides the name.
    """
    if not os.path.isdir(workspace):
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

    A bundled library's error is its own, and in mode `never` nothing can be done.
    """
    mode = _settings.build_mode(request.mode, request.environment)
    for root in _settings.read_roots(request.cache_dir, request.environment):
        artifacts = os.path.join(root, "artifacts") + os.sep
        if mode != "never" and library.startswith(artifacts):
            # On a noexec mount it is sound, and serves others.
            if _store.may_serve(Path(root)):
                _store.quarantine_library(Path(root), Path(library))
            warnings.warn(CacheWarning(f"{library} cannot be loaded ({error}); it is set aside and built anew"), stacklevel=2)
            # What it was copied from may be as wrong as the copy.
            return locate(replace(request, from_scratch=True))
    raise error


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
        if mode != "force" and not request.features and _bundled.find(request.leaf, _parent_folders(request.module)):
            return None
        raise


def _installed(request: Request, mode: str) -> str:
    bundled = _bundled.find(request.leaf, _parent_folders(request.module))
    if mode == "force":
        raise ExtensionNotFound(
            request.module,
            "mode `force` builds from source, and no workspace is known that declares it",
            "pass `workspace=`, or install the project editable",
        )
    if request.features:
        raise ExtensionNotFound(
            request.module, "extra features need a build, and no workspace is known that declares it", "pass `workspace=`"
        )
    if bundled is None:
        raise ExtensionNotFound(
            request.module,
            "it is not installed, and no workspace is known that declares it",
            "install a wheel that has it, or install the project editable",
        )
    _warn_of_others(request.module, bundled)
    return str(bundled.library)


def _parent_folders(module: str) -> list[str]:
    """
    Folders in which `import` would look for the module, found without importing anything.
    """
    folders: list[str] | None = None
    parts = module.split(".")[:-1]
    for length in range(1, len(parts) + 1):
        imported = sys.modules.get(".".join(parts[:length]))
        if imported is not None:
            folders = list(getattr(imported, "__path__", ()))
            continue
        # The last part alone: a namespace package under its full name would ask for its parent, which is not imported.
        spec = PathFinder.find_spec(parts[length - 1], folders)
        if spec is None or spec.submodule_search_locations is None:
            return []
        folders = list(spec.submodule_search_locations)
    return folders or []


def _warn_of_others(module: str, bundled: _bundled.Bundled) -> None:
    if bundled.others:
        names = ", ".join(map(str, bundled.others))
        warnings.warn(StaleExtensionWarning(f"{module}: {bundled.library} is used; remove what lies beside it: {names}"), stacklevel=3)


def _process_began() -> float:
    """
    Seconds since the epoch at which this process started; where that cannot be told, now, which only means more builds.
    """
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return time.time()


@dataclass
class _Story:
    """
    One request for one declared extension.
    """

    request: Request
    mode: str
    spec: ExtensionSpec
    environment: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.environment = self.request.environment

    def tell(self) -> str:
        if self.mode == "force":
            return self._force()
        if self.bundled is not None:
            _warn_of_others(self.spec.module, self.bundled)
        return self._never() if self.mode == "never" else self._auto()

    def judge(self) -> Verdict:
        bundled = str(self.bundled.library) if self.bundled else None
        if self.bundled and not self.staleness:
            return self._verdict(State.BUNDLED, True, bundled, "its sidecar says: these sources, this ABI")
        entry = self._entry_for_judgement()
        if bundled and self.mode == "never":
            return self._verdict(State.STALE, True, bundled, "; ".join(self.staleness[:3]))
        if entry is not None:
            return self._verdict(State.CACHED, True, str(entry.library), "built from these facts")
        if self.mode == "never":
            return self._verdict(
                State.MISSING, False, None, f"not built, and mode `never` forbids it; run `rust-ext build {self.spec.module}`"
            )
        try:
            moved, known = self.changes(self.snapshot)
        except ToolchainMissing as error:
            ready = bundled is not None and not _settings.stale_is_error(self.environment)
            return Verdict(self.spec.module, State.STALE if bundled else State.MISSING, ready, False, bundled, str(error))
        why = summary(moved) if known else "not built here yet"
        return Verdict(self.spec.module, State.STALE if known or bundled else State.MISSING, False, True, bundled, why)

    def _entry_for_judgement(self) -> _store.Entry | None:
        if self.mode != "never":
            with contextlib.suppress(ToolchainMissing):
                return _store.look_up(self.roots, self.spec.module, self.snapshot.fingerprint)
        return _store.equal_but_for(self.roots, self.spec.module, self.sources.fingerprint, "toolchain")

    def _verdict(self, state: State, ready: bool, library: str | None, why: str) -> Verdict:
        return Verdict(self.spec.module, state, ready, False, library, why)

    # What is looked at, each once.

    @cached_property
    def bundled(self) -> _bundled.Bundled | None:
        # Extra features never match a bundled module.
        return None if self.request.features else _bundled.find(self.spec.leaf, self.folders)

    @cached_property
    def folders(self) -> list[str]:
        return _parent_folders(self.spec.module)

    @cached_property
    def workspace(self) -> _discover.Workspace:
        return _discover.read_workspace(self.spec.workspace)

    @cached_property
    def sources(self) -> Snapshot:
        """
        The facts without the toolchain's.
        """
        return self._look(toolchain=False)

    @cached_property
    def snapshot(self) -> Snapshot:
        """
        All the facts.
        """
        return self._look(toolchain=True)

    def _look(self, *, toolchain: bool) -> Snapshot:
        # Read anew, since this is also how a build finds out that something moved.
        workspace = _discover.read_workspace(self.spec.workspace)
        return _snapshot.take(
            self.spec,
            workspace,
            self.environment,
            features=self.request.features,
            toolchain=toolchain,
            memo_root=self.notes if toolchain else None,
        )

    @cached_property
    def staleness(self) -> tuple[str, ...]:
        """
        Why the bundled library is not what these sources give.
        """
        assert self.bundled is not None
        return _bundled.differences(self.bundled.library, self.spec.leaf, self.sources.fingerprint)

    @property
    def roots(self) -> list[Path]:
        """
        Where entries may come from, as it stands: a root may appear while we wait.
        """
        roots = map(Path, _settings.read_roots(self.request.cache_dir, self.environment))
        return [root for root in roots if _store.may_serve(root)]

    @cached_property
    def notes(self) -> Path | None:
        """
        Where to keep what only saves time, if anywhere.
        """
        roots = map(Path, _settings.write_roots(self.request.cache_dir, self.environment))
        return next((root for root in roots if _store.ready_root(root) is None), None)

    @cached_property
    def write_root(self) -> Path:
        """
        Where to build and to store; the first that will do, with a warning if another was meant.
        """
        tried: list[str] = []
        for root in map(Path, _settings.write_roots(self.request.cache_dir, self.environment)):
            reason = _store.ready_root(root)
            if reason is None:
                if tried:
                    warnings.warn(CacheWarning(f"{'; '.join(tried)}; using {root}"), stacklevel=2)
                return root
            tried.append(reason)
        raise CacheUnavailable(tuple(tried))

    # The three modes.

    def _auto(self) -> str:
        if self.bundled and not self.staleness:
            return self._use(self.bundled.library, self.sources)
        try:
            now = self.snapshot
        except ToolchainMissing as missing:
            return self._without_toolchain(missing)
        if self.bundled:
            self._warn_of_stale("is left aside")
        entry = _store.look_up(self.roots, self.spec.module, now.fingerprint)
        return self._use(entry.library, now) if entry else self._build_or_wait(now)

    def _without_toolchain(self, missing: ToolchainMissing) -> str:
        entry = _store.equal_but_for(self.roots, self.spec.module, self.sources.fingerprint, "toolchain")
        if entry is not None:
            return str(entry.library)
        if self.bundled is None:
            raise missing
        if _settings.stale_is_error(self.environment):
            raise StaleExtension(self.spec.module, str(self.bundled.library), self.staleness) from missing
        self._warn_of_stale("is used all the same, since there is no toolchain")
        return str(self.bundled.library)

    def _never(self) -> str:
        if self.bundled:
            if self.staleness:
                self._warn_of_stale("is used all the same, since the mode is `never`")
                return str(self.bundled.library)
            return self._use(self.bundled.library, self.sources)
        entry = _store.equal_but_for(self.roots, self.spec.module, self.sources.fingerprint, "toolchain")
        if entry is None:
            raise ExtensionNotFound(
                self.spec.module,
                f"it is not built, and {_settings.BUILD_MODE}=never forbids building it",
                f"run `rust-ext build {self.spec.module}` or set {_settings.BUILD_MODE}=auto",
            )
        return self._use(entry.library, self.sources)

    def _force(self) -> str:
        if self.request.overlay is None:
            # Children of this process accept what it built.
            os.environ.setdefault(_settings.FORCE_TOKEN, uuid.uuid4().hex)
        return self._build_or_wait(self.snapshot)

    def _warn_of_stale(self, fate: str) -> None:
        assert self.bundled is not None
        text = f"{self.spec.module}: {self.bundled.library} {fate}; it was built from something else ({'; '.join(self.staleness[:3])})"
        warnings.warn(StaleExtensionWarning(text), stacklevel=2)

    # Building.

    def changes(self, now: Snapshot) -> tuple[list[Change], bool]:
        """
        What moved since this checkout last used the module, and whether it has.
        """
        for root in filter(None, [self.notes, *self.roots]):
            known = _store.recall(root, self.spec.workspace, self.spec.module)
            if known is not None:
                return explain(known, now.fingerprint.facts), True
        return [], False

    def _acceptable(self, now: Snapshot) -> _store.Entry | None:
        """
        What somebody else has built meanwhile and will do.
        """
        entry = _store.look_up(self.roots, self.spec.module, now.fingerprint)
        if entry is None or self.mode != "force":
            return entry
        if self.request.always:
            return None
        token = self.environment.get(_settings.FORCE_TOKEN)
        return entry if entry.began >= _process_began() or (token is not None and entry.token == token) else None

    def _build_or_wait(self, now: Snapshot) -> str:
        entry = self._acceptable(now)
        if entry is not None:
            return self._use(entry.library, now)
        progress = Progress(label=self.spec.module)
        moved, known = self.changes(now)
        forced = "asked for" if self.mode == "force" else ""
        progress.announce(f"{'re' if known else ''}building {self.spec.module}: {forced or summary(moved) or 'not built here yet'}")
        folder = _build.target_folder(self.write_root, now)
        _staging.private_folder(folder.parent)
        limit = _settings.seconds(_settings.LOCK_TIMEOUT, self.environment, 3600.0) or 3600.0
        try:
            with _locks.hold(
                folder.with_name(folder.name + ".lock"),
                holder=self.spec.module,
                timeout=limit,
                ready=lambda: self._acceptable(now),
                say=progress.note,
            ) as got:
                if isinstance(got, _store.Entry):
                    return self._use(got.library, now)
                return self._build_locked(folder, progress)
        except _locks.LockUnavailable as reason:
            progress.note(f"{reason}; building in a folder of our own")
            return self._build_alone(folder, progress)

    def _build_alone(self, folder: Path, progress: Progress) -> str:
        private = folder.with_name(f"{folder.name}-{os.getpid()}-{uuid.uuid4().hex[:8]}")
        try:
            return self._build_locked(private, progress)
        finally:
            shutil.rmtree(private, ignore_errors=True)

    def _build_locked(self, folder: Path, progress: Progress) -> str:
        # While waiting for the lock, sources may have moved and somebody may have built them.
        now = self._look(toolchain=True)
        entry = self._acceptable(now)
        if entry is not None:
            return self._use(entry.library, now)
        try:
            built = _build.build(
                now,
                lambda: self._look(toolchain=True),
                folder=folder,
                logs=self.write_root / "logs",
                environment=self.environment,
                progress=progress,
                from_scratch=self.mode == "force" or self.request.from_scratch,
            )
        except BaseException as error:
            progress.finish(False, f"{self.spec.module} was not built")
            if isinstance(error, OSError):
                raise CacheUnavailable((f"{error.filename or folder}: {error.strerror or error}",)) from error
            raise
        progress.finish(True, f"built {self.spec.module} in {built.seconds:.1f} s ({self.spec.profile})")
        return self._publish(built)

    def _publish(self, built: _build.Built) -> str:
        now = built.snapshot
        origin = _store.Origin(
            toolchain=now.toolchain.release if now.toolchain else "",
            abi=now.abi.facts.get("abi/tag", ""),
            glibc_floor=built.glibc_floor,
            began=built.began,
            seconds=built.seconds,
            token=self.environment.get(_settings.FORCE_TOKEN) if self.mode == "force" else None,
        )
        name = self.spec.leaf + now.abi.suffix
        try:
            entry = _store.publish(self.write_root, self.spec.module, now.fingerprint, built.artifact, name, origin)
        except OSError as error:
            # The module is right; only the next process has to build again.
            warnings.warn(CacheWarning(f"{self.spec.module} is loaded from {built.artifact}: storing it failed ({error})"), stacklevel=2)
            return str(built.artifact)
        return self._use(entry.library, now)

    # The record.

    def _use(self, library: Path, now: Snapshot) -> str:
        """
        Note what was decided, for explanations and for the warm path.
        """
        if self.notes is None:
            return str(library)
        if now.toolchain is not None:
            _store.remember(self.notes, self.spec.workspace, self.spec.module, now.fingerprint.facts)
        if not self.request.features and not self.request.overlay:
            with contextlib.suppress(OSError):
                self._write_record(self.notes, library, now)
        return str(library)

    def _write_record(self, root: Path, library: Path, now: Snapshot) -> None:
        workspace = self.request.workspace or str(self.spec.workspace)
        identity = _record.identify(self.spec.module, workspace, self.mode, self.environment)
        beside = set(_bundled.candidates(self.spec.leaf, self.folders))
        present = now.watched.present | {str(library)} | {path for path in beside if os.path.lexists(path)}
        if str(library) in beside:
            present |= {str(_bundled.sidecar_of(library, self.spec.leaf))}
        if now.toolchain is None:
            # A newer build by another compiler would be preferred.
            present |= {
                str(top)
                for top in (r / "artifacts" / self.spec.module / now.fingerprint.source_key[:SHORT] for r in self.roots)
                if top.is_dir()
            }
        signatures = {path: signature for path in present if (signature := _record.signature(path)) is not None}
        if len(signatures) != len(present) or self.mode == "force":
            return
        data = _record.compose(
            identity,
            declared=_snapshot.declared_values(self.spec, self.environment),
            present=signatures,
            absent=now.watched.absent | (beside - present),
            library=str(library),
            started_ns=now.started_ns,
            boot=_record.boot_id() if now.native else None,
        )
        if data is not None:
            _staging.write_atomically(Path(_record.path_of(str(root), identity)), data)
