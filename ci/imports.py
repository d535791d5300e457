"""
Measure what importing an extension module costs a fresh process.

A *way* of importing is a command that imports the module and then prints how
long the statement took and which file was loaded. CPU time (user and system) is
what the kernel reports for the child process. This module measures wall time.

Invariant: each run is a new process, and two ways differ only in the import.
Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "Run",
    "Way",
    "code_that_imports",
    "measure",
    "median",
    "own_environment",
    "pair",
    "plain_folder",
    "run",
    "spread",
]


@dataclass(frozen=True)
class Run:
    """
    Times of one process, in seconds.
    """

    #: User and system time of the process and its children.
    cpu: float
    wall: float
    #: The import statement alone, measured by the process.
    statement: float
    #: The file that was loaded.
    library: str


@dataclass(frozen=True)
class Way:
    """
    One way to import a module.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]

    def run(self) -> Run:
        """
        Import the module once, in a new process.

        `RuntimeError` with the process's stderr if it fails.
        """
        cpu, wall, output = run(self.name, self.command, self.environment)
        seconds, library = output.split(maxsplit=1)
        return Run(cpu, wall, float(seconds), library.strip())


def run(
    name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> tuple[float, float, str]:
    """
    Run a command. Return the CPU seconds of it and its children, its wall seconds, and its stdout.

    `RuntimeError` with the process's stderr if it fails.
    """
    start = time.perf_counter()
    # stderr goes to a file: a process that fills two pipes waits until both are read.
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        output = process.stdout.read()  # type: ignore[union-attr]  # a pipe
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        # Reaped above, to get its resource usage: `Popen` must not wait again.
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        message = errors.read().decode(errors="replace")
    if process.returncode != 0:
        raise RuntimeError(f"{name}: the command failed with {process.returncode}:\n{message}")
    return usage.ru_utime + usage.ru_stime, wall, output.decode()


def own_environment() -> dict[str, str]:
    """
    Return this process's environment without variables that change how an interpreter finds and caches modules.

    Without cached byte code an editable package would be compiled at each import, but an installed one would not.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    }


def measure(ways: Sequence[Way], rounds: int, warm_up: int = 2) -> dict[str, list[Run]]:
    """
    Run every way once per round, in a rotating order.
    """
    runs: dict[str, list[Run]] = {way.name: [] for way in ways}
    for turn in range(-warm_up, rounds):
        shift = turn % len(ways)
        for way in (*ways[shift:], *ways[:shift]):
            run = way.run()
            if turn >= 0:
                runs[way.name].append(run)
    return runs


def spread(seconds: Iterable[float]) -> tuple[float, float, float]:
    """
    Return the quartiles, in milliseconds.
    """
    low, middle, high = quantiles((value * 1000 for value in seconds), n=4, method="inclusive")
    return low, middle, high


def code_that_imports(module: str, before: str = "", statement: str = "") -> str:
    """
    Return a program that runs *before*, imports *module* (by *statement*, if given) and prints what `Way` reads.
    """
    return (
        f"{before}\nimport sys, time\nstart = time.perf_counter()\n{statement or f'import {module}'}\n"
        f"end = time.perf_counter()\nprint(end - start, sys.modules[{module!r}].__file__)\n"
    )


def plain_folder(library: str, leaf: str, folder: str) -> dict[str, str]:
    """
    Copy a library into *folder* for a plain import; return the variables with which Python finds it.
    """
    suffix = ".pyd" if os.name == "nt" else ".so"
    shutil.copyfile(library, Path(folder, leaf + suffix))
    return {"PYTHONPATH": folder}


@contextlib.contextmanager
def pair(python: str, module: str, environment: Mapping[str, str]) -> Iterator[tuple[Way, Way]]:
    """
    Yield the import of *module* as installed, and the plain import of the same library.
    """
    ours = Way("ours", (python, "-c", code_that_imports(module)), environment)
    library = ours.run().library
    with tempfile.TemporaryDirectory() as folder:
        leaf = module.rpartition(".")[2]
        plain = Way(
            "plain", (python, "-c", code_that_imports(leaf)), {**environment, **plain_folder(library, leaf, folder)}
        )
        yield ours, plain
