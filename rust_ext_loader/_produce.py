"""
Bring a library about: wait for whoever builds it already, else build and publish it.

    lock -> look again -> pull -> build -> publish

Invariant: the lock saves work and nothing rests on it. Whoever gets it looks
again before building, and where locks do not work, everybody builds in a folder
of his own and the first to publish wins.
"""

from __future__ import annotations

import os
import shutil
import time
import warnings

from . import _settings
from ._errors import CacheUnavailable, CacheWarning
from .build import _build
from .build._progress import Progress
from .cache import _gc, _store
from .facts import _sources
from .facts._fingerprint import reason
from .files import _locks, _staging
from .remote import _exchange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from ._case import Case
    from .facts._snapshot import Snapshot

#: Seconds since the epoch.
_IMPORTED = time.time()


def produce(case: Case, now: Snapshot) -> str:
    """
    A library of exactly these facts, or of what they have become meanwhile.

    Raises `BuildFailed`, `InvalidArtifact`, `SourcesMoved`, `LockTimeout` or `CacheUnavailable`.
    """
    entry = _acceptable(case, now)
    if entry is not None:
        return case.use(entry.library, now, entry.seen)
    progress = Progress(label=case.spec.module)
    folder = _build.target_folder(case.write_root, now)
    _staging.private_folder(folder.parent)
    limit = _settings.seconds(_settings.LOCK_TIMEOUT, case.environment, 3600.0)
    try:
        with _locks.hold(
            folder.with_name(folder.name + ".lock"),
            holder=case.spec.module,
            timeout=limit,
            ready=lambda: _acceptable(case, now),
            say=progress.note,
        ) as got:
            if isinstance(got, _store.Entry):
                return case.use(got.library, now, got.seen)
            return _build_locked(case, folder, progress)
    except _locks.LockUnavailable as reason:
        progress.note(f"{reason}; building in a folder of our own")
        return _build_alone(case, folder, progress)


def _acceptable(case: Case, now: Snapshot) -> _store.Entry | None:
    """
    What somebody else has built meanwhile and will do.
    """
    if case.mode != "force":
        return case.entry(now)
    if case.request.always:
        return None
    token = case.environment.get(_settings.FORCE_TOKEN)

    def made_for_us(entry: _store.Entry) -> bool:
        # One that began in the future was made before a clock was set back, who knows when.
        return _process_began() <= entry.began <= time.time() or (token is not None and entry.token == token)

    return case.entry(now, made_for_us)


def _build_alone(case: Case, folder: Path, progress: Progress) -> str:
    private = folder.with_name(f"{folder.name}-{os.getpid()}-{_staging.unique_name()[:8]}")
    library = ""
    try:
        library = _build_locked(case, private, progress)
    finally:
        # What could not be stored is loaded from where it was built.
        if not library.startswith(os.fspath(private) + os.sep):
            shutil.rmtree(private, ignore_errors=True)
    return library


def _build_locked(case: Case, folder: Path, progress: Progress) -> str:
    # While waiting for the lock, sources may have moved and somebody may have built them.
    now = case.look(toolchain=True)
    # Asked for under the lock: of all who wait for the same build, one pulls.
    entry = _acceptable(case, now) or _exchange.instead_of_building(case, now, progress)
    if entry is not None:
        return case.use(entry.library, now, entry.seen)
    moved, known = case.changes(now)
    unusual = "" if case.spec.profile == "release" else f" ({case.spec.profile})"
    forced = "asked for" if case.mode == "force" else ""
    progress.announce(
        f"{'re' if known else ''}building {case.spec.module}{unusual}: {forced or reason(moved, known=known)}"
    )
    for path in _named_in_vain(now):
        progress.note(f"note: `source-inputs` names {path}, and nothing is there")
    try:
        built = _build.build(
            now,
            lambda: case.look(toolchain=True),
            folder=folder,
            logs=case.write_root / "logs",
            environment=case.environment,
            progress=progress,
            from_scratch=case.mode == "force" or case.request.from_scratch,
        )
    except BaseException as error:
        progress.finish(False, f"{case.spec.module} was not built")
        if isinstance(error, OSError):
            raise CacheUnavailable((f"{error.filename or folder}: {error.strerror or error}",)) from error
        raise
    progress.finish(True, f"built {case.spec.module} in {built.seconds:.1f} s ({case.spec.profile})")
    return _publish(case, built)


def _named_in_vain(now: Snapshot) -> list[str]:
    """
    What crates declare as inputs and is not there: a slip would leave an input unwatched in silence.
    """
    return [
        name.removeprefix("source/")
        for name, value in now.fingerprint.facts.items()
        if name.startswith("source/") and value == _sources.NOTHING
    ]


def _publish(case: Case, built: _build.Built) -> str:
    now = built.snapshot
    # Where there is no lock, somebody may have been faster: nobody's module is moved from under him.
    entry = _acceptable(case, now)
    if entry is not None:
        return case.use(entry.library, now, entry.seen)
    # Hashes of the same values have other keys each time, and the same inputs shall have one place.
    before = case.entry(now, lambda found: found.seen.keys() == built.seen.keys())
    seen = before.seen if before else built.seen
    origin = _store.Origin(
        toolchain=now.toolchain.release if now.toolchain else "",
        abi=now.abi.facts.get("abi/tag", ""),
        glibc_floor=built.glibc_floor,
        began=built.began,
        seconds=built.seconds,
        token=case.environment.get(_settings.FORCE_TOKEN) if case.mode == "force" else None,
        seen=seen,
    )
    name = case.spec.leaf + now.abi.suffix
    try:
        entry = _store.publish(case.write_root, case.spec.module, now.fingerprint, built.artifact, name, origin)
    except OSError as error:
        # The module is right; only the next process has to build again.
        warnings.warn(
            CacheWarning(f"{case.spec.module} is loaded from {built.artifact}: storing it failed ({error})"),
            stacklevel=2,
        )
        return str(built.artifact)
    _gc.after_build(case.write_root, case.environment)
    return case.use(entry.library, now, entry.seen)


def _process_began() -> float:
    """
    Seconds since the epoch at which this process started; where that cannot be told, when it imported this module.
    """
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
