"""
Carry out the decision to build: wait for a build that is running, or build and publish.

    lock -> look again -> pull -> build -> publish

Invariant: the lock saves work; correctness does not depend on it. Each process
reads the facts and the cache again after it has taken the lock. Where locks do
not work, each process builds in a private folder, and the first to publish wins.
"""

from __future__ import annotations

import os
import shutil
import time
import warnings

from . import _gather, _note, _settings
from ._errors import CacheUnavailable, CacheWarning
from ._model import Mode
from ._values import dataclass
from .build import _build, _target_state
from .build._progress import Progress
from .cache import _roots, _store
from .facts._fingerprint import ABI_TAG, NOTHING, SOURCE_FILE
from .files import _locks, _staging
from .remote import _exchange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from ._gather import Gatherer
    from ._request import Target
    from .declare._edit_tier import EditSettings
    from .facts._snapshot import Snapshot

#: Seconds since the epoch.
_IMPORTED = time.time()


def produce(gatherer: Gatherer, now: Snapshot) -> str:
    """
    The path of a library that was built from the facts *now*, or from newer facts if these change while it waits.

    Raises `BuildFailed`, `InvalidArtifact`, `SourcesMoved`, `LockTimeout` or `CacheUnavailable`.
    """
    target = gatherer.target
    found = _acceptable(target, now)
    if found is not None:
        return found.note(gatherer)
    run = _Run(gatherer, now.edit, _roots.required_writable(target.request.cache_dir, target.environment))
    folder = _target_state.target_folder(run.root, now)
    _staging.private_folder(folder.parent)
    limit = _settings.seconds(_settings.LOCK_TIMEOUT, target.environment, 3600.0)
    try:
        with _locks.hold(
            folder.with_name(folder.name + ".lock"),
            holder=target.spec.module,
            timeout=limit,
            ready=lambda: _acceptable(target, now),
            say=run.progress.note,
        ) as got:
            if isinstance(got, _Found):
                return got.note(gatherer)
            return run.build_in(folder)
    except _locks.LockUnavailable as reason:
        run.progress.note(f"{reason}; building in a private folder")
        return run.build_alone(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """
    An entry, and the facts that it was built from.
    """

    entry: _store.Entry
    facts: Snapshot

    def note(self, gatherer: Gatherer) -> str:
        """
        Note the use of the entry; returns the path to load its library from.
        """
        return _note.note(gatherer, self.entry.library, self.facts, self.entry.seen)


def _acceptable(target: Target, now: Snapshot) -> _Found | None:
    """
    An entry of these facts that this request accepts. Another process may have published it since the decision.

    In place of an entry for editing, the full build of the same sources is accepted, and preferred.
    """
    if target.mode is Mode.FORCE:
        entry = _fresh_enough(target, now)
        return None if entry is None else _Found(entry=entry, facts=now)
    for facts in (now.for_editing(None), now) if now.edit is not None else (now,):
        entry = _gather.cached(target, facts)
        if entry is not None:
            return _Found(entry=entry, facts=facts)
    return None


def _fresh_enough(target: Target, now: Snapshot) -> _store.Entry | None:
    """
    In mode `force`: an entry that was built for this process or after it started.
    """
    if target.request.always:
        return None
    token = target.environment.get(_settings.FORCE_TOKEN)

    def is_fresh_enough(entry: _store.Entry) -> bool:
        # A start time in the future means that the clock was set back since: the real age is unknown.
        return _process_began() <= entry.began <= time.time() or (token is not None and entry.token == token)

    return _gather.cached(target, now, is_fresh_enough)


class _Run:
    """
    One build and its publication.
    """

    def __init__(self, gatherer: Gatherer, edit: EditSettings | None, root: Path) -> None:
        self.gatherer = gatherer
        #: The settings of the edit tier; `None` for the full build.
        self.edit = edit
        self.target = gatherer.target
        #: The root to build in and to publish to.
        self.root = root
        self.progress = Progress(label=self.target.spec.module)

    def build_alone(self, folder: Path) -> str:
        """
        Build where locks do not work: in a folder that no other process uses.
        """
        private = folder.with_name(f"{folder.name}-{os.getpid()}-{_staging.unique_name()[:8]}")
        library = ""
        try:
            library = self.build_in(private)
        finally:
            # A library that could not be published is loaded from the build folder.
            if not library.startswith(os.fspath(private) + os.sep):
                shutil.rmtree(private, ignore_errors=True)
        return library

    def build_in(self, folder: Path) -> str:
        """
        Look again, then pull or build, and publish.
        """
        target = self.target
        # While this process waited for the lock, sources may have changed and another process may have built them.
        now = self._take_facts()
        found = _acceptable(target, now)
        if found is not None:
            return found.note(self.gatherer)
        # The remote is asked under the lock, so only one of the processes that wait for this build pulls. It has full
        # builds only.
        full = now.for_editing(None)
        entry = _exchange.instead_of_building(target, full, self.root, self.progress.note)
        if entry is not None:
            return _Found(entry=entry, facts=full).note(self.gatherer)
        self._announce(now)
        return self._publish(self._compile(now, folder))

    def _take_facts(self) -> Snapshot:
        return _gather.take_facts(self.target).for_editing(self.edit)

    def _announce(self, now: Snapshot) -> None:
        target = self.target
        past = _gather.history(target, now)
        profile = "" if target.spec.profile == "release" else f" ({target.spec.profile})"
        why = "mode `force`" if target.mode is Mode.FORCE else past.reason
        self.progress.announce(f"{'re' if past.used_before else ''}building {target.spec.module}{profile}: {why}")
        for path in _unmatched_source_inputs(now):
            self.progress.note(f"note: no file matches {path}, which `source-inputs` names")

    def _compile(self, now: Snapshot, folder: Path) -> _build.Built:
        target = self.target
        try:
            built = _build.build(
                now,
                self._take_facts,
                folder=folder,
                logs=self.root / "logs",
                environment=target.environment,
                progress=self.progress,
                from_scratch=target.mode is Mode.FORCE or target.request.from_scratch,
                timings=target.request.timings is not None,
            )
        except BaseException as error:
            self.progress.failed(f"{target.spec.module} was not built")
            if isinstance(error, OSError):
                raise CacheUnavailable((f"{error.filename or folder}: {error.strerror or error}",)) from error
            raise
        if target.request.timings is not None:
            target.request.timings("" if built.timings is None else os.fspath(built.timings))
        seconds = f"{built.seconds:.1f} s"
        if self.edit is None:
            self.progress.succeeded(f"built {target.spec.module} in {seconds} ({target.spec.profile})")
        else:
            self.progress.note(f"built {target.spec.module} for editing in {seconds}; `rust-ext build` optimises")
        return built

    def _publish(self, built: _build.Built) -> str:
        target, now = self.target, built.snapshot
        # Without a lock another process may have published first. Its entry stays current: it may be loaded already.
        found = _acceptable(target, now)
        if found is not None:
            return found.note(self.gatherer)
        name = target.spec.leaf + now.abi.suffix
        origin = self._origin(built)
        try:
            entry = _store.publish(self.root, target.spec.module, now.fingerprint, built.artifact, name, origin)
        except OSError as error:
            # The library is correct. It is only not stored, so the next process has to build again.
            text = f"{target.spec.module} is loaded from {built.artifact}: storing it failed ({error})"
            warnings.warn(CacheWarning(text), stacklevel=2)
            return str(built.artifact)
        from .cache import _gc

        _gc.after_build(self.root, target.environment)
        return _note.note(self.gatherer, entry.library, now, entry.seen)

    def _origin(self, built: _build.Built) -> _store.Origin:
        target, now = self.target, built.snapshot
        # Equal values have different hashes in each build, because each hash has a random key. The values of an earlier
        # entry with the same inputs are reused, so that one set of inputs keeps one pointer.
        before = _gather.cached(target, now, lambda found: found.seen.keys() == built.seen.keys())
        return _store.Origin(
            toolchain=now.toolchain.release if now.toolchain else "",
            abi=now.abi.facts.get(ABI_TAG, ""),
            glibc_floor=built.glibc_floor,
            began=built.began,
            seconds=built.seconds,
            token=target.environment.get(_settings.FORCE_TOKEN) if target.mode is Mode.FORCE else None,
            seen=before.seen if before else built.seen,
        )


def _unmatched_source_inputs(now: Snapshot) -> list[str]:
    """
    Names in `source-inputs` that match no file: a typing error there would leave an input unwatched.
    """
    return [
        name.removeprefix(SOURCE_FILE)
        for name, value in now.fingerprint.facts.items()
        if name.startswith(SOURCE_FILE) and value == NOTHING
    ]


def _process_began() -> float:
    """
    Seconds since the epoch at which this process started; if that is unknown, when it imported this module.
    """
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
