"""
Unit tests of `_locks`: one holder at a time, waiters name the holder, and the lock of a dead process is free.
"""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from children import expect_line

from rust_ext_loader._errors import LockTimeout
from rust_ext_loader.files import _file_systems, _locks
from rust_ext_loader.files._locks import Locked, LockUnavailable, hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(_locks.__file__).parents[2]

#: Holds a lock, prints `held`, and releases it when its standard input closes.
HOLDER = """
import sys
from pathlib import Path
from rust_ext_loader.files._locks import hold
with hold(Path(sys.argv[1]), holder="app._mm", timeout=60, ready=lambda: None, say=lambda text: None):
    print("held", flush=True)
    sys.stdin.read()
"""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")


class ManualClock:
    """
    A clock that advances only in `sleep`.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        #: Events with the second at which they happen.
        self.events: list[tuple[float, Callable[[], object]]] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.slept.append(seconds)
        self.now += seconds
        for event in [event for event in self.events if event[0] <= self.now]:
            self.events.remove(event)
            event[1]()


@contextlib.contextmanager
def held_elsewhere(lock_file: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, lock_file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdin is not None
        try:
            expect_line(process, "held")
            yield process
        finally:
            process.stdin.close()
            process.wait()


def nothing() -> None:
    return None


def take(
    lock_file: Path, *, timeout: float = 60.0, ready: Callable[[], str | None] = nothing
) -> contextlib.AbstractContextManager[Locked | str]:
    return hold(lock_file, holder="app._mm", timeout=timeout, ready=ready, say=lambda _text: None)


def is_free(lock_file: Path) -> bool:
    try:
        with take(lock_file, timeout=0):
            return True
    except LockTimeout:
        return False


def test_a_free_lock_is_taken_at_once_and_released(tmp_path: Path) -> None:
    """
    Taking a free lock calls neither `ready` nor `say`. Afterwards only the lock file is left.
    """
    lock_file = tmp_path / "new" / "target.lock"
    with hold(lock_file, holder="app._mm", timeout=1, ready=lambda: pytest.fail("asked"), say=pytest.fail) as got:
        name = json.loads((tmp_path / "new" / "target.lock.holder").read_text())

        assert isinstance(got, Locked)
        assert got.held
        assert (name["what"], name["pid"], name["host"]) == ("app._mm", os.getpid(), socket.gethostname())
        assert not is_free(lock_file)

    assert os.listdir(lock_file.parent) == ["target.lock"]
    assert is_free(lock_file)


def test_a_waiter_names_the_holder_until_the_timeout(tmp_path: Path) -> None:
    """
    The message comes after 2 s, then every 15 s. The timeout is an error that names the holder and the setting.
    """
    lock_file, time, said = tmp_path / "target.lock", ManualClock(), list[tuple[float, str]]()
    with (
        held_elsewhere(lock_file) as other,
        pytest.raises(LockTimeout) as error,
        hold(
            lock_file,
            holder="app._mm",
            timeout=40,
            ready=nothing,
            say=lambda text: said.append((time.now, text)),
            clock=time.clock,
            sleep=time.sleep,
        ),
    ):
        pytest.fail("two processes hold the same lock")

    assert [round(at) for at, _ in said] == [2, 17, 32]
    assert f"pid {other.pid} on {socket.gethostname()} (building app._mm for " in said[0][1]
    assert str(lock_file) in said[0][1]
    assert time.now == pytest.approx(40)
    assert time.slept[0] == 0.02
    assert max(time.slept) == 0.25
    assert f"pid {other.pid}" in str(error.value)
    assert "RUST_EXT_LOCK_TIMEOUT" in str(error.value)


def test_a_waiter_takes_a_published_entry(tmp_path: Path) -> None:
    """
    If an entry is published during the wait, the waiter takes it and does not hold the lock.
    """
    lock_file, time = tmp_path / "target.lock", ManualClock()
    with (
        held_elsewhere(lock_file),
        hold(
            lock_file,
            holder="app._mm",
            timeout=60,
            ready=lambda: "entry" if time.now > 1 else None,
            say=pytest.fail,
            clock=time.clock,
            sleep=time.sleep,
        ) as got,
    ):
        assert got == "entry"

    assert is_free(lock_file)


def test_a_waiter_takes_a_released_lock(tmp_path: Path) -> None:
    """
    The waiter takes the lock within one poll interval after the release.
    """
    lock_file, time = tmp_path / "target.lock", ManualClock()
    with held_elsewhere(lock_file) as other:
        assert other.stdin is not None
        time.events = [(1.0, other.stdin.close), (1.0, other.wait)]
        with hold(
            lock_file, holder="app._mm", timeout=60, ready=nothing, say=pytest.fail, clock=time.clock, sleep=time.sleep
        ) as got:
            assert isinstance(got, Locked)
            assert time.now <= 1.25


@needs_posix
def test_a_lock_of_a_killed_process_does_not_block(tmp_path: Path) -> None:
    """
    The files that a killed holder leaves behind have no effect.
    """
    lock_file = tmp_path / "target.lock"
    with held_elsewhere(lock_file) as other:
        other.kill()
        other.wait()

        assert sorted(os.listdir(tmp_path)) == ["target.lock", "target.lock.holder"]
        with take(lock_file, timeout=0) as got:
            assert isinstance(got, Locked)
            assert json.loads((tmp_path / "target.lock.holder").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "host": "h", "what": "w", "since": "y"}', "\0\xff"]
)
def test_an_unreadable_holder_file_means_another_process(text: str, tmp_path: Path) -> None:
    """
    The holder file is for messages only, so an invalid one is not an error.
    """
    (tmp_path / "target.lock.holder").write_bytes(text.encode("latin-1"))

    assert _locks._holder(tmp_path / "target.lock") == "another process"


def test_threads_exclude_each_other(tmp_path: Path) -> None:
    """
    Two threads of one process cannot hold the lock at the same time.
    """
    lock_file, inside, most = tmp_path / "target.lock", list[int](), list[int]()
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(5):
            with take(lock_file):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == [1] * 20


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_hold_the_lock(tmp_path: Path) -> None:
    """
    The child knows that it is not the holder. The parent can release the lock while the child still runs.
    """
    lock_file = tmp_path / "target.lock"
    context = multiprocessing.get_context("fork")
    verdicts, leave = context.SimpleQueue(), context.Event()

    def child(locked: Locked) -> None:
        verdicts.put((locked.held, is_free(lock_file)))
        leave.wait(60)

    with take(lock_file) as got:
        assert isinstance(got, Locked)
        process = context.Process(target=child, args=(got,))
        process.start()
        assert verdicts.get() == (False, False)

    assert is_free(lock_file)
    leave.set()
    process.join()
    assert process.exitcode == 0


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_leaves_the_block_does_not_release_the_lock(tmp_path: Path) -> None:
    """
    The parent's lock and holder file survive a child that unwinds through the `with` block.
    """
    lock_file = tmp_path / "target.lock"
    with take(lock_file):
        pid = 0
        try:
            with take(tmp_path / "other.lock"):
                pid = os.fork()
                if pid == 0:
                    raise SystemExit  # noqa: TRY301 - unwinds as an exit of the child would
                os.waitpid(pid, 0)

                assert not is_free(tmp_path / "other.lock")
                assert (tmp_path / "other.lock.holder").exists()
        except SystemExit:
            os._exit(0)


@needs_posix
def test_an_interrupt_while_waiting_leaves_nothing_locked(tmp_path: Path) -> None:
    """
    Ctrl-C ends the wait at once, and the lock can be taken later.
    """
    lock_file = tmp_path / "target.lock"

    def interrupted(_seconds: float) -> None:
        signal.raise_signal(signal.SIGINT)

    with (
        held_elsewhere(lock_file),
        pytest.raises(KeyboardInterrupt),
        hold(lock_file, holder="app._mm", timeout=60, ready=nothing, say=pytest.fail, sleep=interrupted),
    ):
        pytest.fail("two processes hold the same lock")

    assert is_free(lock_file)


def test_an_exception_in_the_block_releases_the_lock(tmp_path: Path) -> None:
    """
    Any exception that ends the block releases the lock.
    """
    with pytest.raises(KeyboardInterrupt), take(tmp_path / "target.lock"):
        raise KeyboardInterrupt

    assert os.listdir(tmp_path) == ["target.lock"]
    assert is_free(tmp_path / "target.lock")


@pytest.mark.skipif(sys.platform == "win32", reason="flock is a Unix call")
@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL], ids=errno.errorcode.get)
def test_a_file_system_without_locks_is_reported_at_once(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If locks are not supported, there is no retry and no other kind of lock. The reason is the system's message.
    """
    import fcntl

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(LockUnavailable, match=os.strerror(code)), take(tmp_path / "target.lock"):
        pytest.fail("the lock was taken although locks are not supported")

    assert not (tmp_path / "target.lock.holder").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="flock is a Unix call")
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(lambda: None, "two processes can hold the same lock", id="always succeeds"),
        pytest.param(lambda: threading.Event().wait(), "no answer within 0.1 s", id="blocks forever"),
    ],
)
def test_locks_without_effect_are_detected(
    answer: Callable[[], None], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    `_locks` tests the locks of a file system before it uses them. That check leaves no file.
    """
    import fcntl

    monkeypatch.setattr(_locks, "_TEST_TIMEOUT", 0.1)
    monkeypatch.setattr(fcntl, "flock", lambda _descriptor, _operation: answer())
    with pytest.raises(LockUnavailable, match=problem), take(tmp_path / "target.lock"):
        pytest.fail("the lock was taken although it cannot exclude other processes")

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_lock_file_that_cannot_be_created_is_reported_at_once(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the lock file cannot be created, the lock is unavailable, and the caller builds in another folder.
    """

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(LockUnavailable, match=os.strerror(code)), take(tmp_path / "target.lock"):
        pytest.fail("the lock was taken although its file cannot be created")


def test_network_file_systems_are_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    On a network file system no lock file is created, since the lock call might never return.
    """
    monkeypatch.setattr(
        _file_systems, "_mount_table", lambda: f"36 35 0:1 / {os.path.realpath(tmp_path)} rw - nfs4 server:/x rw"
    )
    with pytest.raises(LockUnavailable, match="nfs4 is a network file system"), take(tmp_path / "target.lock"):
        pytest.fail("the lock was taken although it cannot exclude other processes")

    assert os.listdir(tmp_path) == []
