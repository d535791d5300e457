"""
Run a command that cannot outlive us.

The command leads a session and process group of its own, so that one signal
ends it with all its children. It starts behind a *gate*, a shell that waits for
a word before it turns into the command; a *watcher*, a second shell, holds a
pipe to this process and kills the group when the pipe closes without a word.
However this process ends, SIGKILL included, the kernel closes both pipes.

Invariant: no instruction of the command runs before its watcher does, and no
other process ever holds a copy of the pipes.
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

#: Turns into its arguments once a line arrives; ends if the pipe closes first.
_GATE = 'IFS= read -r go && exec "$@" </dev/null'

#: Its argument is the group's id. The word comes on every ordinary end.
_WATCH = 'IFS= read -r word || kill -s KILL -- "-$1"'

#: An ignored SIGCHLD is inherited, and cargo could then wait for no compiler. Shells may not reset it (POSIX); Python may.
_RESET_SIGCHLD = (
    "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)

#: Our ends of the pipes to gates and watchers.
_open_ends: set[int] = set()
#: Held while a pipe is made and noted, and over a fork: no child gets a pipe that it does not know of.
_making = threading.RLock()


def _close_ends_in_child() -> None:
    # A forked worker may live for long; with a copy of the pipe it would keep the watcher from seeing our death.
    while _open_ends:
        with contextlib.suppress(OSError):
            os.close(_open_ends.pop())
    _making.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_making.acquire, after_in_parent=_making.release, after_in_child=_close_ends_in_child)


class ProcessGroup:
    """
    A running command with everything it starts; output comes through two pipes.

    Raises `OSError` when it cannot be started. Whoever makes one lets it `go`, and must
    `close` it in the end, with `kill` if that end is not an ordinary one.
    """

    stdout: IO[bytes]
    stderr: IO[bytes]

    def __init__(self, command: Sequence[str], *, directory: Path, environment: Mapping[str, str]) -> None:
        self._gate: _Word | None = None
        self._word: _Word | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._status: int | None = None
        self._ended = False
        if sys.platform == "win32" or not os.path.exists(_SHELL):
            self._process = _start(command, None, directory, environment)
        else:
            try:
                self._start_watched(command, directory, environment)
            except BaseException:
                self._forget_pipes()
                raise
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.stdout, self.stderr = self._process.stdout, self._process.stderr

    def _start_watched(self, command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
        self._gate, self._word = _Word(), _Word()
        gated = [*_reset_if_needed(), _SHELL, "-c", _GATE, "gate", *command]
        self._process = _start(gated, self._gate.reader, directory, environment)
        self._watcher = subprocess.Popen(
            [_SHELL, "-c", _WATCH, "watcher", str(self._process.pid)],
            stdin=self._word.reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        self._gate.close_reader()
        self._word.close_reader()

    def go(self) -> None:
        """
        Let the command begin. Apart from the start, so that the caller can be ready to `kill` whatever interrupts him.
        """
        if self._gate is not None:
            self._gate.say()
            self._gate.close()

    def _forget_pipes(self) -> None:
        # Without a word the gate ends, and the watcher ends what is left: nothing stays of a start that failed half-way.
        for pipe in (self._gate, self._word):
            if pipe is not None:
                pipe.close()

    def poll(self) -> bool:
        """
        Whether the command itself has ended. It is not reaped yet, so its group id cannot be anyone else's.
        """
        if not self._ended:
            self._ended, self._status = _look(self._process)
        return self._ended

    def kill(self) -> None:
        """
        End the whole group at once. Compilers have nothing to save, and a gentle signal could be ignored.
        """
        if sys.platform == "win32":
            # The system's own folder is first on the search path of every Windows process.
            subprocess.run(["taskkill", "/T", "/F", "/PID", str(self._process.pid)], check=False, capture_output=True)  # noqa: S607
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, *, kill: bool = False) -> int | None:
        """
        Wait for the end, dismiss the watcher, and tell the exit status: negative for a signal, `None` if nobody knows it.
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
            # A second interrupt may have come between: without the word the watcher ends what has not ended.
            if self._word is not None and self._ended:
                self._word.say()
            self._forget_pipes()
            if self._watcher is not None:
                self._watcher.wait()


class _Word:
    """
    A pipe on which one line is said, or which closes in silence.
    """

    def __init__(self) -> None:
        with _making:
            self.reader, self._writer = os.pipe()
            _open_ends.update((self.reader, self._writer))

    def say(self) -> None:
        # The listener may have been killed.
        with contextlib.suppress(OSError):
            os.write(self._writer, b"done\n")

    def close_reader(self) -> None:
        # Once only: a number that was closed may by now be another thread's pipe.
        self.reader = _close_once(self.reader)

    def close(self) -> None:
        self.close_reader()
        self._writer = _close_once(self._writer)


def _close_once(descriptor: int) -> int:
    with _making:
        # Absent in a forked child, which closed them all at its birth.
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
        # No `preexec_fn`: it may deadlock when other threads are about.
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        bufsize=0,
    )


def _reset_if_needed() -> list[str]:
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN and sys.executable:
        return [sys.executable, "-I", "-S", "-c", _RESET_SIGCHLD]
    return []


def _look(process: subprocess.Popen[bytes]) -> tuple[bool, int | None]:
    if not hasattr(os, "waitid"):
        return process.poll() is not None, process.returncode
    try:
        seen = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        # SIGCHLD is ignored, or somebody else reaped it: it has ended, nobody knows how.
        return True, None
    if seen is None:
        return False, None
    return True, seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status
