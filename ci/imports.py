"""
Measure what importing an extension module costs a fresh process.

A *way* of importing is a command that imports and then prints how long the
statement took and which file was loaded. The process around it is measured by
the kernel: user and system CPU of the child, and wall time.

Invariant: each run is a new process, and nothing but the import differs between
two ways. Standard library only.
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

__all__ = ["Run", "Way", "code_that_imports", "measure", "median", "own_environment", "pair", "plain_folder", "spread"]


@dataclass(frozen=True)
class Run:
    """
    What one process took, in seconds.
    """

    #: User and system time of the process and its children.
    cpu: float
    wall: float
    #: The import statement alone, by the process's own clock.
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
        Import it once, in a new process.

        `RuntimeError` when the process fails, with its words.
        """
        start = time.perf_counter()
        with subprocess.Popen(
            self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            output, words = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]  # both are pipes
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - start
            # Reaped above, for the sake of its usage: `Popen` must not wait again.
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"{self.name}: the import failed:\n{words.decode(errors='replace')}")
        seconds, library = output.decode().split(maxsplit=1)
        return Run(usage.ru_utime + usage.ru_stime, wall, float(seconds), library.strip())


def own_environment() -> dict[str, str]:
    """
    The variables of this process without those that change how an interpreter finds and keeps modules.

    Without byte code on disk an editable package would be compiled at each import, an installed one not.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    }


def measure(ways: Sequence[Way], rounds: int, warm_up: int = 2) -> dict[str, list[Run]]:
    """
    Run every way once per round, in an order that turns from round to round.
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
    Quartiles, in milliseconds.
    """
    low, middle, high = quantiles((value * 1000 for value in seconds), n=4, method="inclusive")
    return low, middle, high


def code_that_imports(module: str, before: str = "", statement: str = "") -> str:
    """
    Program text that imports *module* after *before*, if need be by another *statement*, and prints what `Way` reads.
    """
    return (
        f"{before}\nimport sys, time\nstart = time.perf_counter()\n{statement or f'import {module}'}\nend = time.perf_counter()\n"
        f"print(end - start, sys.modules[{module!r}].__file__)\n"
    )


def plain_folder(library: str, leaf: str, folder: str) -> dict[str, str]:
    """
    Put a library where a plain import finds it; the variables that make it be found.
    """
    suffix = ".pyd" if os.name == "nt" else ".so"
    shutil.copyfile(library, Path(folder, leaf + suffix))
    return {"PYTHONPATH": folder}


@contextlib.contextmanager
def pair(python: str, module: str, environment: Mapping[str, str]) -> Iterator[tuple[Way, Way]]:
    """
    The import of *module* as installed, and the plain import of the very file that it loads.
    """
    ours = Way("ours", (python, "-c", code_that_imports(module)), environment)
    library = ours.run().library
    with tempfile.TemporaryDirectory() as folder:
        leaf = module.rpartition(".")[2]
        plain = Way(
            "plain", (python, "-c", code_that_imports(leaf)), {**environment, **plain_folder(library, leaf, folder)}
        )
        yield ours, plain
