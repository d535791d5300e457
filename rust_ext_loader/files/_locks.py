"""
Let one process at a time build in a folder. The others wait and report it.

The kernel holds the lock, so a dead holder blocks no process, even if its files
remain. A waiting process reports which process builds and for how long. It stops waiting
as soon as another process has published the entry that it waits for.

Invariant: correctness does not depend on the lock. If the file system cannot lock,
or if two processes can hold the same lock, `LockUnavailable` tells the caller to
build in a private folder. Each file system is tested first.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from typing import TypeVar

from .. import _warm
from .._errors import LockTimeout
from .._values import dataclass
from . import _file_systems, _staging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from filelock import BaseFileLock

T = TypeVar("T")

#: Seconds of waiting before the first message, and between later messages.
FIRST_MESSAGE = 2.0
NEXT_MESSAGE = 15.0
#: Seconds between two attempts: at first, and at most.
_POLL_FIRST = 0.02
_POLL_LAST = 0.25

#: Seconds after which a non-blocking call counts as blocked.
_TEST_TIMEOUT = 5.0


class LockUnavailable(Exception):
    """
    The file system cannot lock, or two processes can hold the same lock. Internal: never leaves the package.
    """

    def __init__(self, lock_file: str, problem: str) -> None:
        super().__init__(lock_file, problem)
        self.lock_file = lock_file
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.lock_file} cannot be locked ({self.problem})"


@dataclass(frozen=True, slots=True)
class Locked:
    """
    The lock, held by the current process until the `with` block ends.
    """

    lock_file: Path
    #: The process that took the lock: a forked child does not hold it.
    pid: int

    @property
    def held(self) -> bool:
        """
        Whether the calling process is the one that took the lock.
        """
        return self.pid == os.getpid()


@contextlib.contextmanager
def hold(
    lock_file: Path,
    *,
    holder: str,
    timeout: float,
    ready: Callable[[], T | None],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Locked | T]:
    """
    Hold a lock for the block, or yield what `ready` found while another process held the lock.

    *holder* names what this process builds, for the messages of waiting processes. Raises `LockTimeout` or
    `LockUnavailable`.
    """
    lock = _lock(lock_file)
    _require_working_locks(lock_file)
    if not _acquire(lock, lock_file):
        found = _wait(lock, lock_file, timeout, ready, say, clock, sleep)
        if found is not None:
            yield found
            return
    locked = Locked(lock_file, os.getpid())
    try:
        _write_holder_file(lock_file, holder)
        yield locked
    finally:
        # In a forked child `filelock` has closed its copy, and the holder file belongs to the parent.
        if locked.held:
            try:
                _holder_file(lock_file).unlink(missing_ok=True)
            except OSError:
                pass
            finally:
                lock.release(force=True)


def _lock(lock_file: Path) -> BaseFileLock:
    import filelock

    if sys.platform != "win32" and not filelock.has_fcntl:
        raise LockUnavailable(str(lock_file), "this Python has no flock")
    if kind := _file_systems.network(lock_file):
        raise LockUnavailable(str(lock_file), f"{kind} is a network file system")
    mode = 0o660 if _warm.is_shared() else 0o600
    # A new object each time: two threads then hold two descriptors, which exclude each other like two processes.
    return filelock.FileLock(lock_file, mode=mode, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)


def _require_working_locks(lock_file: Path) -> None:
    """
    Raise `LockUnavailable` unless the file system answers, and a held lock excludes a second holder.

    On some file systems a non-blocking call blocks for ever, so a daemon thread makes the call. Other file systems
    grant every lock.
    """
    if sys.platform == "win32":
        return
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(_lock_problem(lock_file)), daemon=True)
    thread.start()
    thread.join(_TEST_TIMEOUT)
    problem = answers[0] if answers else f"no answer within {_TEST_TIMEOUT:g} s"
    if problem:
        raise LockUnavailable(str(lock_file), problem)


def _lock_problem(lock_file: Path) -> str:
    import fcntl

    trial = lock_file.with_name(f".{_staging.unique_name()}.lock")
    try:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        with trial.open("xb") as holder, trial.open("rb") as other:
            # Removed at once, so that the test leaves no file in any case.
            trial.unlink()
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                # Which of these errors is raised depends on the file system.
                return ""
            return "two processes can hold the same lock"
    except OSError as error:
        # ENOSYS, ENOLCK, EROFS, EACCES, a full disk: waiting would not help.
        return error.strerror or str(error)


def _acquire(lock: BaseFileLock, lock_file: Path) -> bool:
    import filelock

    try:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0, blocking=False)
    except filelock.Timeout:
        return False
    except OSError as error:
        raise LockUnavailable(str(lock_file), error.strerror or str(error)) from error
    return True


def _wait(
    lock: BaseFileLock,
    lock_file: Path,
    timeout: float,
    ready: Callable[[], T | None],
    say: Callable[[str], None],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> T | None:
    """
    Poll until this process has the lock (`None`) or `ready` finds something.

    A blocking flock cannot always be interrupted, and the entry may appear before the lock is free.
    """
    began = clock()
    next_message, pause = FIRST_MESSAGE, _POLL_FIRST
    while True:
        found = ready()
        if found is not None:
            return found
        waited = clock() - began
        if waited >= timeout:
            raise LockTimeout(str(lock_file), _holder(lock_file), timeout)
        if waited >= next_message:
            next_message = waited + NEXT_MESSAGE
            say(
                f"waiting for {_holder(lock_file)}; lock {lock_file}, "
                f"giving up in {timeout - waited:.0f} s (RUST_EXT_LOCK_TIMEOUT)"
            )
        sleep(min(pause, timeout - waited))
        pause = min(pause * 1.5, _POLL_LAST)
        if _acquire(lock, lock_file):
            return None


def _holder_file(lock_file: Path) -> Path:
    return lock_file.with_name(lock_file.name + ".holder")


def _write_holder_file(lock_file: Path, what: str) -> None:
    target = _holder_file(lock_file)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    record = {"what": what, "pid": os.getpid(), "host": _staging.host_name(), "since": time.time()}
    try:
        draft.write_text(json.dumps(record), encoding="utf-8")
        draft.replace(target)
    except OSError:
        # The file only serves the messages of waiting processes: the kernel decides which process holds the lock.
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _holder(lock_file: Path) -> str:
    """
    The process that holds the lock, according to its holder file.
    """
    try:
        record = json.loads(_holder_file(lock_file).read_text(encoding="utf-8"))
        seconds = max(time.time() - float(record["since"]), 0.0)
        return f"pid {int(record['pid'])} on {record['host']} (building {record['what']} for {seconds:.0f} s)"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
