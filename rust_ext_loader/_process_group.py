"""
Run a command that cannot outlive this process.

The command leads its own session and process group, so that one signal ends it
with all its children. It starts behind a *gate*: a shell that waits for a line
and then executes the command. A *watcher*, a second shell, reads a pipe from this
process, and kills the group if the pipe closes without a line. The kernel closes
both pipes however this process ends, SIGKILL included.

Invariant: the command starts only after its watcher. No other process ever holds
a copy of the pipes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import IO

_SHELL = "/bin/sh"

#: Executes its arguments when a line arrives; exits if the pipe closes first.
_GATE = 'IFS= read -r go && exec "$@" </dev/null'

#: Kills the group whose id is its argument, unless a line arrives. Every normal end sends the line.
_WATCH = 'IFS= read -r line || kill -s KILL -- "-$1"'

#: An ignored SIGCHLD is inherited, and cargo could then not wait for its compilers. POSIX forbids shells to reset it.
_RESET_SIGCHLD = (
    "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)

#: This process's ends of the pipes to gates and watchers.
_open_ends: set[int] = set()
#: Held while a pipe is made and registered, and during a fork, so that a forked child can close every pipe.
_pipes_lock = threading.RLock()


def _close_ends_in_child() -> None:
    # A forked worker that kept a copy of the pipe would hide this process's death from the watcher.
    while _open_ends:
        with contextlib.suppress(OSError):
            os.close(_open_ends.pop())
    _pipes_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_pipes_lock.acquire, after_in_parent=_pipes_lock.release, after_in_child=_close_ends_in_child
    )


class ProcessGroup:
    """
    A command and every process that it starts; its output arrives through two pipes.

    Raises `OSError` if the command cannot be started. The caller calls `go`, and must call `close` at the
    end: with `kill=True`, unless the command should end by itself.
    """

    stdout: IO[bytes]
    stderr: IO[bytes]

    def __init__(self, command: Sequence[str], *, directory: Path, environment: Mapping[str, str]) -> None:
        self._gate: _LinePipe | None = None
        self._watcher_pipe: _LinePipe | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._status: int | None = None
        self._ended = False
        if sys.platform == "win32" or not os.path.exists(_SHELL):
            self._process = _start(command, None, directory, environment)
        else:
            try:
                self._start_watched(command, directory, environment)
            except BaseException:
                self._close_pipes()
                raise
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.stdout, self.stderr = self._process.stdout, self._process.stderr

    def _start_watched(self, command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
        self._gate, self._watcher_pipe = _LinePipe(), _LinePipe()
        gated = [*_sigchld_reset(), _SHELL, "-c", _GATE, "gate", *command]
        self._process = _start(gated, self._gate.reader, directory, environment)
        self._watcher = subprocess.Popen(
            [_SHELL, "-c", _WATCH, "watcher", str(self._process.pid)],
            stdin=self._watcher_pipe.reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        self._gate.close_reader()
        self._watcher_pipe.close_reader()

    def go(self) -> None:
        """
        Let the command begin. This is a second step so that the caller can handle an interrupt before the command runs.
        """
        if self._gate is not None:
            self._gate.write_line()
            self._gate.close()

    def _close_pipes(self) -> None:
        # Without a line the gate exits and the watcher kills the group, so a failed start leaves no process.
        for pipe in (self._gate, self._watcher_pipe):
            if pipe is not None:
                pipe.close()

    def poll(self) -> bool:
        """
        Whether the command itself has ended. It is not reaped yet, so the kernel cannot reuse its group id.
        """
        if not self._ended:
            self._ended, self._status = _exit_status(self._process)
        return self._ended

    def kill(self) -> None:
        """
        Kill the whole group. Compilers have no state to save, and a milder signal could be ignored.
        """
        if sys.platform == "win32":
            # The system folder is first on the search path of every Windows process.
            subprocess.run(["taskkill", "/T", "/F", "/PID", str(self._process.pid)], check=False, capture_output=True)  # noqa: S607
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, *, kill: bool = False) -> int | None:
        """
        Wait for the end, stop the watcher and return the exit status: negative for a signal, `None` if unknown.
        """
        try:
            if kill:
                self.kill()
            seen = self.poll()
            code = self._process.wait()
            if not seen:
                self._status, self._ended = code, True
            return self._status
        finally:
            # After a second interrupt the command may still run: without the line the watcher kills it.
            if self._watcher_pipe is not None and self._ended:
                self._watcher_pipe.write_line()
            self._close_pipes()
            if self._watcher is not None:
                self._watcher.wait()


class _LinePipe:
    """
    A pipe that carries one line, or closes without one.
    """

    def __init__(self) -> None:
        with _pipes_lock:
            self.reader, self._writer = os.pipe()
            _open_ends.update((self.reader, self._writer))

    def write_line(self) -> None:
        # The reader may have been killed.
        with contextlib.suppress(OSError):
            os.write(self._writer, b"done\n")

    def close_reader(self) -> None:
        # Closed once: the kernel may have given the number of a closed pipe to another thread.
        self.reader = _close_once(self.reader)

    def close(self) -> None:
        self.close_reader()
        self._writer = _close_once(self._writer)


def _close_once(descriptor: int) -> int:
    with _pipes_lock:
        # A forked child has already closed all pipes.
        if descriptor in _open_ends:
            _open_ends.remove(descriptor)
            os.close(descriptor)
    return -1


def _start(
    command: Sequence[str], stdin: int | None, directory: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=directory,
        env=dict(environment),
        # No `preexec_fn`: it may deadlock if other threads run.
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        bufsize=0,
    )


def _sigchld_reset() -> list[str]:
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN and sys.executable:
        return [sys.executable, "-I", "-S", "-c", _RESET_SIGCHLD]
    return []


def _exit_status(process: subprocess.Popen[bytes]) -> tuple[bool, int | None]:
    if not hasattr(os, "waitid"):
        return process.poll() is not None, process.returncode
    try:
        seen = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        # SIGCHLD is ignored, or another thread reaped the process: it has ended with an unknown status.
        return True, None
    if seen is None:
        return False, None
    return True, seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status
