"""
Compile one extension in a private target folder.

Before cargo runs, the outputs of a package are removed if its inputs changed since it was
compiled in this folder: cargo compares only modification times, and an older time would
hide a change. After cargo has run, the undeclared inputs of the build are collected, and
every input is read again. If one changed, the result is discarded and the extension
is built again.

Invariant: a library is returned with exactly the facts that it was compiled from.
An interrupted build leaves its packages marked as unknown.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time

from .. import _stat, _warm
from .._errors import SourcesMoved
from .._values import dataclass
from ..facts import _seen
from ..files import _staging
from . import _compile, _observe
from ._target_state import TargetState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import IO

    from ..facts._snapshot import Snapshot
    from ._progress import Progress

#: Number of builds before giving up, if the sources change during each of them.
ATTEMPTS = 3

#: A file's timestamp can be older than the write by this many ns.
_CLOCK_TICK_NS = 20_000_000

#: Log files kept per module, and as many reports of cargo.
_LOGS_KEPT = 10


@dataclass(frozen=True, slots=True)
class Built:
    """
    A library in the target folder, and the facts that it was compiled from.
    """

    artifact: Path
    snapshot: Snapshot
    #: The undeclared inputs that the build read.
    seen: Mapping[str, str]
    #: Seconds since the epoch.
    began: float
    seconds: float
    #: The oldest glibc that can load the library, on Linux.
    glibc_floor: tuple[int, int] | None
    #: Cargo's report of how long each crate took, if the caller wanted one and cargo wrote it.
    timings: Path | None


def build(
    snapshot: Snapshot,
    read_again: Callable[[], Snapshot],
    *,
    folder: Path,
    logs: Path,
    environment: Mapping[str, str],
    progress: Progress,
    from_scratch: bool,
    timings: bool = False,
) -> Built:
    """
    Build until the sources do not change during a build. The caller holds the lock of the folder.

    Raises `BuildFailed`, `InvalidArtifact` or, after `ATTEMPTS` builds, `SourcesMoved`.
    """
    job = _compile.Job(
        folder=folder, environment=environment, progress=progress, from_scratch=from_scratch, timings=timings
    )
    state = TargetState(folder, snapshot.spec.profile)
    known_files = state.seen_files(snapshot.current_inputs)
    previous: _ScriptOutput | None = None
    moved: tuple[str, ...] = ()
    for _ in range(ATTEMPTS):
        began, began_monotonic, clocks = time.time(), time.monotonic(), _stat.clocks()
        stamps = _stamps(snapshot.watched.present | known_files)
        with _open_log(logs, snapshot.spec.module) as (log, log_path):
            compiled = _compile.compile_once(snapshot, job, log, log_path)
        report = _keep_report(folder, log_path, snapshot.spec.module) if timings else None
        seconds = time.monotonic() - began_monotonic
        after = read_again()
        seen = {package.key: after.current_inputs.record(package.names) for package in compiled.packages}
        known_files = after.current_inputs.watched(_observe.all_names(compiled.packages)).present
        together = {name: value for read in seen.values() for name, value in read.items()}
        if snapshot.edit is not None:
            # The path of the workspace binds a library for the edit loop to its checkout.
            together |= after.current_inputs.record([_seen.WORKSPACE])
        # A file that was edited and reverted during the build shows only in its timestamp.
        touched = _touched(stamps, known_files, clocks)
        scripts = _ScriptOutput(_seen.files(together), _written_by_scripts(touched, compiled.packages))
        # A build script's output in the source tree is accepted if two builds in a row write the same bytes.
        if previous is not None and scripts.files == previous.files:
            touched -= scripts.paths & previous.paths
        previous = scripts
        touched |= _vanished(seen, compiled.packages, snapshot.spec.workspace)
        moved = after.changed_since(snapshot) or _relative_to(touched, snapshot.spec.workspace)
        if not moved:
            state.mark_known(snapshot.packages, seen, compiled.edited)
            for gap in (gap for package in compiled.packages for gap in package.unknown):
                progress.note(f"{gap}; its undeclared inputs are unknown")
            return Built(compiled.artifact, after, together, began, seconds, compiled.glibc_floor, report)
        progress.note(f"{', '.join(moved[:3])} changed during the build; building again")
        snapshot = after
    raise SourcesMoved(snapshot.spec.module, moved, ATTEMPTS)


@dataclass(frozen=True, slots=True)
class _ScriptOutput:
    """
    What build scripts wrote into the sources during one build.
    """

    #: The digest of every undeclared file that the build read, by name.
    files: Mapping[str, str]
    #: The files that were written while a build script ran.
    paths: frozenset[str]


def _stamps(paths: Iterable[str]) -> dict[str, _warm.Signature | None]:
    return {path: _stat.signature(path) for path in paths if os.path.isfile(path)}


def _touched(stamps: Mapping[str, _warm.Signature | None], seen: Iterable[str], clocks: tuple[int, int]) -> set[str]:
    """
    Files that were written since the build began, even if their content is the same.

    A file without an entry in *stamps* is judged by its timestamps.
    """
    threshold = _stat.started_at(clocks, _stat.clocks()) - _CLOCK_TICK_NS
    paths = {path for path, stamp in stamps.items() if _stat.signature(path) != stamp}
    for path in seen:
        stamp = _stat.signature(path)
        if path not in stamps and stamp is not None and _changed_at(stamp) >= threshold:
            paths.add(path)
    return paths


def _written_by_scripts(paths: Iterable[str], packages: Iterable[_observe.Package]) -> frozenset[str]:
    """
    Files that were last written while a package's build script ran. The compiler of that package starts later.
    """
    runs = [package.script_ran for package in packages if package.script_ran]
    stamps = {path: stamp for path in paths if (stamp := _stat.signature(path)) is not None}
    return frozenset(
        path
        for path, stamp in stamps.items()
        if any(start - _CLOCK_TICK_NS <= _changed_at(stamp) <= end + _CLOCK_TICK_NS for start, end in runs)
    )


def _vanished(seen: Mapping[str, Mapping[str, str]], packages: Iterable[_observe.Package], root: Path) -> set[str]:
    """
    Files that a compiler opened and that do not exist any more.
    """
    gone = {name for package in packages for name in package.opened if _seen.is_nothing(seen[package.key][name])}
    return {os.path.join(root, name[len(_seen.FILE) :]) for name in gone}


def _relative_to(paths: Iterable[str], root: Path) -> tuple[str, ...]:
    return tuple(os.path.relpath(path, root).replace(os.sep, "/") for path in sorted(paths))


def _changed_at(stamp: _warm.Signature) -> int:
    _, mtime, _, ctime = stamp
    # ctime is compared: tools can set mtime, but not ctime. On Windows ctime is the time of creation.
    return max(mtime, ctime) if os.name == "nt" else ctime


@contextlib.contextmanager
def _open_log(folder: Path, module: str) -> Iterator[tuple[IO[bytes], Path]]:
    _staging.private_folder(folder)
    _remove_all_but(_LOGS_KEPT - 1, folder.glob(f"{module}-*.log"))
    path = folder / f"{module}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{time.monotonic_ns() % 1_000_000:06d}.log"
    with path.open("wb") as log:
        yield log, path


def _keep_report(folder: Path, log_path: Path, module: str) -> Path | None:
    """
    Move cargo's newest report from the target folder to the build's log, under the same name.
    """
    reports = folder / "cargo-timings"
    kept = log_path.with_suffix(".html")
    try:
        # The newest by name: the names hold the time.
        os.replace(max(reports.glob("cargo-timing-*.html")), kept)
    except (OSError, ValueError):
        # A report is not worth a failed build.
        return None
    shutil.rmtree(reports, ignore_errors=True)
    _remove_all_but(_LOGS_KEPT, kept.parent.glob(f"{module}-*.html"))
    return kept


def _remove_all_but(count: int, files: Iterable[Path]) -> None:
    """
    Remove the oldest files. Their names hold the time.
    """
    for old in sorted(files)[:-count]:
        old.unlink(missing_ok=True)
