"""
Hold processes at a known point, kill them there, and check what is left of them.

No test sleeps for a fixed time. It waits for a condition and fails at a deadline that
a healthy machine stays far below.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from children import killed_at_exit
from eventually import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from checkout import Checkout, Loaded

#: Seconds within which compilers must end after their parent process died.
COMPILER_EXIT_LIMIT = 2.0


def processes() -> list[int]:
    """
    Ids of all processes, including zombies.
    """
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def has_open(process: int, path: Path) -> bool:
    """
    Whether a process holds a file open.
    """
    # Files may be closed, and processes may end, during this scan.
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(descriptor) == os.fspath(path):
                    return True
    return False


def alive(mark: str) -> list[str]:
    """
    Command lines of running processes that have a mark in their arguments or environment.
    """
    found = []
    for process in processes():
        if process == os.getpid():
            continue
        folder = Path(f"/proc/{process}")
        # The process may have ended during the scan. A zombie has neither arguments nor environment.
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if os.fsencode(mark) in command + (folder / "environ").read_bytes():
                found.append(os.fsdecode(command.replace(b"\0", b" ")))
    return found


class Gate:
    """
    A point in a crate's source at which rustc blocks: the crate includes a fifo.

    A fifo is not a regular file, so the toolkit does not count it as an input: the gate changes no fact of the crate.
    """

    def __init__(self, checkout: Checkout, crate: str = "alpha") -> None:
        self._fifo = checkout.root / crate / "src" / "gate"
        os.mkfifo(self._fifo)
        library = f"{crate}/src/lib.rs"
        text = (checkout.root / library).read_text(encoding="utf-8")
        checkout.write(library, f'{text}\nconst _: &[u8] = include_bytes!("gate");\n')
        self._holding: list[int] = []
        self._standing: set[int] = set()

    def reached(self, builder: subprocess.Popen[str]) -> None:
        """
        Wait until a compiler of this load blocks at the gate.
        """
        eventually(lambda: self._take_hold() or builder.poll() is not None, "a compiler at the gate")
        if not self._holding:
            raise AssertionError(builder.communicate())
        eventually(lambda: bool(self._readers()), "the compiler at the gate has it open")
        self._standing = self._readers()

    def _take_hold(self) -> bool:
        try:
            # Opening for writing fails while no process has the fifo open for reading.
            self._holding.append(os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def let_through(self) -> None:
        """
        Let the compiler that blocks at the gate continue, and wait until it has closed the fifo or died.

        A dying compiler loses its arguments before it closes its files. Without this wait, the test could
        mistake the dying compiler for the next one at the gate, and the next one would block forever.
        """
        while self._holding:
            os.close(self._holding.pop())
        eventually(lambda: not self._standing & self._readers(), "the compiler has left the gate")

    def _readers(self) -> set[int]:
        return {process for process in processes() if process != os.getpid() and has_open(process, self._fifo)}


def kill_at(gate: Gate, checkout: Checkout, within: float = PATIENCE) -> None:
    """
    Start a load of the gated crate, kill it while its compiler blocks at the gate, and wait until its processes end.

    A process that is still running could be taken for the next compiler at the gate.
    """
    builder = checkout.start()
    with killed_at_exit(builder):
        gate.reached(builder)
        builder.kill()
        builder.wait(PATIENCE)
    eventually(lambda: not alive(str(checkout.cache)), "no compiler is left", within=within)
    gate.let_through()


def linker_gate(checkout: Checkout) -> Path:
    """
    Install a linker that writes a piece of `alpha` and then blocks until the returned fifo is opened and closed.
    """
    folder = checkout.cache.parent
    gate = folder / "linker-gate"
    os.mkfifo(gate)
    linker = script(
        folder / "linker",
        f"""
        case "$*" in *libalpha.so*)
            for argument; do [ "$previous" = -o ] && head -c 1024 /dev/zero > "$argument"; previous=$argument; done
            cat '{gate}' > /dev/null
        esac
        exec cc "$@"
        """,
    )
    checkout.environment["RUSTFLAGS"] = f"-Clinker={linker}"
    return gate


def run_around_compilation(checkout: Checkout, *, before: str = ":", after: str = ":") -> None:
    """
    Run shell commands in the checkout before and after each compilation.
    """
    wrapper = checkout.tools / "cargo"
    real = wrapper.read_text(encoding="utf-8").rpartition("exec ")
    rest = real[2].rstrip("\n")
    wrapper.write_text(
        f"{real[0]}\n"
        f'[ "$1" = rustc ] && (cd "{checkout.root}" && {before})\n{rest}\nstatus=$?\n'
        f'[ "$1" = rustc ] && (cd "{checkout.root}" && {after})\nexit $status\n',
        encoding="utf-8",
    )


class StartLine:
    """
    A barrier for processes. `prelude` is code that brings a process to it.
    """

    def __init__(self, folder: Path) -> None:
        self._there = folder / "there"
        self._there.mkdir()
        self._line = (folder / "line").open("wb")
        fcntl.flock(self._line, fcntl.LOCK_EX)
        self.prelude = f"""
            import fcntl, os
            with open({os.fspath(folder / "line")!r}) as line:
                open(os.path.join({os.fspath(self._there)!r}, str(os.getpid())), "x").close()
                fcntl.flock(line, fcntl.LOCK_SH)
        """

    def go(self, count: int) -> None:
        """
        Wait until `count` processes are at the barrier, then release all of them at once.
        """
        eventually(lambda: len(os.listdir(self._there)) == count, f"{count} processes at the barrier")
        self._line.close()


class Mounts:
    """
    A private mount namespace. Its mounts are visible only to processes that enter it.
    """

    def __init__(self) -> None:
        command = ["unshare", "--mount", "sh", "-c", "echo ready && exec cat"]
        self._keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._keeper.stdout is not None
        assert self._keeper.stderr is not None
        if self._keeper.stdout.readline() != "ready\n":
            reason = self._keeper.stderr.read()
            self.close()
            raise OSError(reason)

    def mount(self, *arguments: str | Path) -> None:
        """
        Run `mount` inside the namespace.
        """
        self.run("mount", *arguments)

    def run(self, *command: str | Path) -> None:
        """
        Run a command inside the namespace.
        """
        subprocess.run([*self._enter(), *(os.fspath(item) for item in command)], check=True, capture_output=True)

    def make_read_only(self, folder: Path) -> None:
        """
        Make a folder read-only, even for root.
        """
        self.mount("--bind", folder, folder)
        self.mount("-o", "remount,bind,ro", folder)

    def inside(self, checkout: Checkout, behind: str = "") -> Checkout:
        """
        The same checkout with interpreters that run inside the namespace. `behind` is a command that starts them.
        """
        python = script(
            checkout.cache.parent / "python-inside", f'exec {" ".join(self._enter())} {behind} "{checkout.python}" "$@"'
        )
        return dataclasses.replace(checkout, python=python)

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self._keeper.pid}", "--mount", "--"]

    def close(self) -> None:
        """
        End the namespace and its mounts.
        """
        self._keeper.communicate(timeout=PATIENCE)


def script(path: Path, body: str) -> str:
    """
    Write an executable shell script and return its path.
    """
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return os.fspath(path)


def run_script(checkout: Checkout, text: str, arguments: Sequence[str] = (), timeout: float = PATIENCE) -> str:
    """
    Run a Python script with the environment of a load and return its standard output.
    """
    path = checkout.cache.parent / "script.py"
    path.write_text(text, encoding="utf-8")
    command = [checkout.python, os.fspath(path), *arguments]
    done = subprocess.run(
        command, env=checkout.variables(), capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tool(name: str) -> str | None:
    """
    Path of a program, or `None` if this machine does not have it.
    """
    return shutil.which(name)


def load_until_recorded(checkout: Checkout) -> Loaded:
    """
    Load until the warm path's record exists. It is written only when all timestamps are old enough.
    """
    eventually(lambda: checkout.load().value is not None and any((checkout.cache / "records").glob("*")), "a record")
    return checkout.load()


def values(answers: list[dict[str, object]]) -> list[object]:
    """
    The module's value, or the error, of each answer.
    """
    return [answer.get("value") or answer.get("error") for answer in answers]


def load_through(gate: Gate, checkout: Checkout, module: str = "fx.alpha") -> dict[str, object]:
    """
    Load a gated crate. Reaching the gate proves that the crate is compiled again.
    """
    process = checkout.start(module)
    with killed_at_exit(process):
        gate.reached(process)
        gate.let_through()
        return checkout.finish(process)
