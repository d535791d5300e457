"""
Let one process at a time build in a folder, and the others wait aloud.

The kernel holds the lock, so a dead holder never blocks anyone, whatever files
it left behind. A waiter says who builds and since when, and stops waiting as
soon as what it came for has been published by another.

Invariant: correctness never rests on the lock. Where the file system cannot
lock, or where a lock would mean nothing, `LockUnavailable` tells the caller to
build in a folder of its own; each file system is put to the test first.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import TypeVar

from .._errors import LockTimeout
from . import _file_systems, _staging, _trust

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from filelock import BaseFileLock

T = TypeVar("T")

#: Seconds of waiting before the first word, and between later ones.
FIRST_WORD = 2.0
NEXT_WORD = 15.0
#: Seconds between two tries: at first, and at most.
_POLL_FIRST = 0.02
_POLL_LAST = 0.25

#: Seconds after which a call that may not block counts as blocked for ever.
_ANSWER = 5.0


class LockUnavailable(Exception):
    """
    A lock cannot be had here, or would mean nothing. Internal: never leaves the package.
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
    The lock is ours until the `with` block ends.
    """

    lock_file: Path
    #: The process that took it: a forked child holds nothing.
    pid: int

    @property
    def held(self) -> bool:
        """
        Whether the process that asks is the one that took the lock.
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
    Hold a lock for the block, or yield what `ready` found while somebody else held it.

    *holder* says what we are about to build, for those who will wait for us. Raises `LockTimeout` or `LockUnavailable`.
    """
    lock = _lock(lock_file)
    _put_to_the_test(lock_file)
    if not _try(lock, lock_file):
        found = _wait(lock, lock_file, timeout, ready, say, clock, sleep)
        if found is not None:
            yield found
            return
    locked = Locked(lock_file, os.getpid())
    try:
        _leave_name(lock_file, holder)
        yield locked
    finally:
        # In a forked child `filelock` has already closed its copy; the name belongs to the parent.
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
    mode = 0o660 if _trust.is_shared() else 0o600
    # A new object each time: two threads then hold two descriptors, which exclude each other as processes do.
    return filelock.FileLock(lock_file, mode=mode, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)


def _put_to_the_test(lock_file: Path) -> None:
    """
    Raise `LockUnavailable` unless the file system answers, and a held lock keeps others out.

    Some block whoever asks for ever, though told not to: a thread asks, which can be left to its fate. Some say yes to all.
    """
    if sys.platform == "win32":
        return
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(_what_is_wrong_with_locks(lock_file)), daemon=True)
    thread.start()
    thread.join(_ANSWER)
    problem = answers[0] if answers else f"no answer within {_ANSWER:g} s"
    if problem:
        raise LockUnavailable(str(lock_file), problem)


def _what_is_wrong_with_locks(lock_file: Path) -> str:
    import fcntl

    trial = lock_file.with_name(f".{_staging.unique_name()}.lock")
    try:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        with trial.open("xb") as holder, trial.open("rb") as other:
            # At once: whatever happens next, no file stays behind.
            trial.unlink()
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                # Which of the two depends on the file system.
                return ""
            return "locks keep nobody out"
    except OSError as error:
        # Whatever the reason (ENOSYS, ENOLCK, EROFS, EACCES, a full disk): it is the same in a minute.
        return error.strerror or str(error)


def _try(lock: BaseFileLock, lock_file: Path) -> bool:
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
    Poll until the lock is ours (`None`) or `ready` finds something.

    Polling, because a blocking flock can be beyond interruption, and because the entry may appear before the lock is free.
    """
    began = clock()
    next_word, pause = FIRST_WORD, _POLL_FIRST
    while True:
        found = ready()
        if found is not None:
            return found
        waited = clock() - began
        if waited >= timeout:
            raise LockTimeout(str(lock_file), _who(lock_file), timeout)
        if waited >= next_word:
            next_word = waited + NEXT_WORD
            say(
                f"waiting for {_who(lock_file)}; lock {lock_file}, giving up in {timeout - waited:.0f} s (RUST_EXT_LOCK_TIMEOUT)"
            )
        sleep(min(pause, timeout - waited))
        pause = min(pause * 1.5, _POLL_LAST)
        if _try(lock, lock_file):
            return None


def _holder_file(lock_file: Path) -> Path:
    return lock_file.with_name(lock_file.name + ".holder")


def _leave_name(lock_file: Path, what: str) -> None:
    target = _holder_file(lock_file)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    record = {"what": what, "pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    try:
        draft.write_text(json.dumps(record), encoding="utf-8")
        draft.replace(target)
    except OSError:
        # A courtesy to those who wait; the kernel alone decides who holds the lock.
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _who(lock_file: Path) -> str:
    """
    Who holds the lock, as far as it left its name.
    """
    try:
        record = json.loads(_holder_file(lock_file).read_text(encoding="utf-8"))
        seconds = max(time.time() - float(record["since"]), 0.0)
        return f"pid {int(record['pid'])} on {record['host']} (building {record['what']} since {seconds:.0f} s)"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
