"""
Unit tests of `_process_group`: no process that cargo started outlives the Python process that ran cargo.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from children import expect_line
from eventually import eventually

from rust_ext_loader import _process_group
from rust_ext_loader.build import _cargo
from rust_ext_loader.build._cargo import CargoResult

from .fake_cargo import FINISHED, Recorder, check, fake, needs_posix, needs_proc

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(_cargo.__file__).parents[2]


#: A fake cargo that starts two processes, reports each on the barrier, and keeps running. One ignores signals.
BUSY = """
(trap '' INT TERM HUP; echo ready >&3; while :; do sleep 1; done) &
echo ready >&3
sleep 1000
"""


@pytest.fixture
def barrier(tmp_path: Path) -> Iterator[int]:
    """
    The read end of a named pipe on which the busy cargo reports that it runs.
    """
    path = tmp_path / "barrier"
    os.mkfifo(path)
    # The descriptor is both a reader and a writer, so no `open` blocks. Reads do not block: `until_ready` has a limit.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def busy(folder: Path) -> str:
    return f"exec 3> '{folder / 'barrier'}'\n{BUSY}"


def until_ready(barrier: int, parent: subprocess.Popen[str] | None = None) -> None:
    """
    Wait until the busy cargo and its child run; fail at once if the process that started them has ended.
    """
    got = bytearray()

    def both_run() -> bool:
        with contextlib.suppress(BlockingIOError):
            got.extend(os.read(barrier, 100))
        assert parent is None or parent.poll() is None, f"the parent ended early: {parent.communicate()}"
        return got.count(b"ready\n") >= 2

    eventually(both_run, "the busy cargo and its child run", within=20)


def marked(mark: str) -> list[int]:
    """
    Ids of running processes with a mark in their environment, without this process.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX" and f"MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_until_none(mark: str) -> None:
    """
    Wait, with a limit, until the kernel reports no process with the mark.
    """
    eventually(lambda: not marked(mark), f"no process with MARK={mark} is left", within=20)


def watchers() -> int:
    """
    The number of watcher processes that this process has started and not released.
    """
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                count += (
                    int(fields[1]) == os.getpid()
                    and fields[0] != "Z"
                    and b"watcher" in (entry / "cmdline").read_bytes().split(b"\0")
                )
            except OSError:
                continue
    return count


@needs_proc
def test_an_interrupt_ends_the_group_and_is_raised_again(tmp_path: Path, barrier: int) -> None:
    """
    Ctrl-C leaves no compiler and no watcher, even if a compiler ignores signals.
    """

    def interrupt() -> None:
        until_ready(barrier)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    environment = {**os.environ, "MARK": str(tmp_path)}
    with pytest.raises(KeyboardInterrupt):
        _cargo.run(
            ["rustc"],
            cargo=fake(tmp_path, busy(tmp_path)),
            directory=tmp_path,
            environment=environment,
            progress=Recorder(),
            log=None,
            time_limit=60,
        )
    thread.join()

    wait_until_none(str(tmp_path))
    assert watchers() == 0
    assert not _process_group._open_ends


@needs_proc
def test_an_exception_in_the_progress_ends_the_group(tmp_path: Path, barrier: int) -> None:
    """
    Any exception during the build ends all compilers.
    """

    class Fails(Recorder):
        def tick(self) -> None:
            until_ready(barrier)
            raise ZeroDivisionError

    environment = {**os.environ, "MARK": str(tmp_path)}
    with pytest.raises(ZeroDivisionError):
        _cargo.run(
            ["rustc"],
            cargo=fake(tmp_path, busy(tmp_path)),
            directory=tmp_path,
            environment=environment,
            progress=Fails(),
            log=None,
            time_limit=60,
        )

    wait_until_none(str(tmp_path))


@needs_proc
def test_the_time_limit_ends_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, barrier: int) -> None:
    """
    A build beyond its time limit is a failed result that names the limit.
    """
    assert barrier
    monkeypatch.setenv("MARK", str(tmp_path))
    result = check(tmp_path, busy(tmp_path), limit=0.3)
    monkeypatch.delenv("MARK")

    assert (result.succeeded, result.problem, result.status) == (
        False,
        "stopped after the time limit of 0.3 s; raise RUST_EXT_BUILD_TIMEOUT (seconds) if this build is only slow",
        -9,
    )
    wait_until_none(str(tmp_path))


@needs_proc
def test_compilers_of_a_killed_cargo_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If the kernel kills cargo, for example when memory runs out, its compilers are ended too.
    """
    monkeypatch.setenv("MARK", str(tmp_path))
    result = check(tmp_path, "sleep 1000 & kill -9 $$")
    monkeypatch.delenv("MARK")

    assert result.problem == "cargo ended without a final message (signal 9)"
    wait_until_none(str(tmp_path))


@needs_proc
def test_a_daemon_with_open_pipes_does_not_block_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A build may start a daemon, such as a compiler cache. After a successful build it keeps running.
    """
    monkeypatch.setenv("MARK", str(tmp_path))
    result = check(tmp_path, f"sleep 1000 & echo '{FINISHED}'", limit=30)
    monkeypatch.delenv("MARK")
    alive = marked(str(tmp_path))
    for pid in alive:
        os.kill(pid, signal.SIGKILL)

    assert result.succeeded
    assert len(alive) == 1
    assert watchers() == 0


#: Runs cargo in its own process. With `fork` a forked worker runs beside it.
PARENT = """
import os, sys, time, threading
from pathlib import Path
from rust_ext_loader.build import _cargo
from rust_ext_loader.build._progress import Progress

class Forks(Progress):
    forked = False
    def tick(self):
        if not self.forked and sys.argv[3] == "fork":
            self.forked = True
            if os.fork() == 0:
                os.environ.pop("MARK", None)
                time.sleep(60)
                os._exit(0)
            print("forked", flush=True)

_cargo.run(["rustc"], cargo=sys.argv[1], directory=Path(sys.argv[2]), environment={**os.environ, "MARK": sys.argv[2]},
           progress=Forks(), log=None, time_limit=None)
"""


@needs_proc
@pytest.mark.parametrize("manner", ["plain", "fork"])
def test_compilers_of_a_killed_parent_are_ended(manner: str, tmp_path: Path, barrier: int) -> None:
    """
    After SIGKILL no compiler continues, even if a worker that was forked during the build is alive.
    """
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PARENT, fake(tmp_path, busy(tmp_path)), str(tmp_path), manner],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        try:
            until_ready(barrier, parent)
            if manner == "fork":
                expect_line(parent, "forked")
        except BaseException:
            # Otherwise leaving the block would wait for it.
            parent.kill()
            raise
        assert marked(str(tmp_path))
        parent.kill()
        parent.wait()

        try:
            wait_until_none(str(tmp_path))
        finally:
            # Only the forked worker is left in that session. End it here.
            if manner == "fork":
                os.killpg(parent.pid, signal.SIGKILL)


@needs_proc
def test_a_parent_killed_before_the_start_signal_starts_nothing(tmp_path: Path) -> None:
    """
    The command waits for a start signal on a pipe. If the pipe closes first, the command never runs.
    """
    group = _process_group.ProcessGroup(
        [fake(tmp_path, f"echo ran > '{tmp_path / 'ran'}'")],
        directory=tmp_path,
        environment={**os.environ, "MARK": str(tmp_path)},
    )
    assert marked(str(tmp_path))
    # The kernel closes the pipes of a process that dies.
    group._close_pipes()
    group.stdout.close()
    group.stderr.close()
    group.close()

    assert not (tmp_path / "ran").exists()
    wait_until_none(str(tmp_path))


@needs_posix
def test_an_ignored_sigchld_affects_neither_cargo_nor_the_result(tmp_path: Path) -> None:
    """
    Cargo must be able to wait for its compilers. Python cannot get cargo's status, and this is not a failure.
    """
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        result = check(tmp_path, f"(exit 7) & wait $!; echo status $? >&2; echo '{FINISHED}'")
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert (result.succeeded, result.status, result.output) == (True, None, "status 7\n")


@needs_posix
def test_a_pipe_is_closed_once() -> None:
    """
    A second `close` does nothing: the descriptor's number may belong to another pipe by then.
    """
    first = _process_group._LinePipe()
    first.close()
    second = _process_group._LinePipe()
    first.close()

    os.fstat(second.reader)
    second.close()
    assert not _process_group._open_ends


@needs_posix
def test_runs_in_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    """
    Each run has its own pipes and does not inherit those of other runs.
    """
    results: dict[int, CargoResult] = {}
    # The script is written before the threads fork: a file that a fork has open for writing cannot run (ETXTBSY).
    cargo = fake(tmp_path, f"echo \"error: $1\" >&2; ls /proc/self/fd 2>/dev/null | wc -l >&2; echo '{FINISHED}'")

    def work(number: int) -> None:
        results[number] = _cargo.run(
            [str(number)],
            cargo=cargo,
            directory=tmp_path,
            environment=os.environ,
            progress=Recorder(),
            log=None,
            time_limit=60,
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {number: result.output.split("\n")[0] for number, result in results.items()} == {
        n: f"error: {n}" for n in range(8)
    }
    assert len({result.output.split("\n")[1] for result in results.values()}) == 1
