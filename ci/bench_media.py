"""
Measure media preprocessing, from encoded bytes to a model's input, against the alternatives.

There is one worker process per side. A round asks all workers in turn for one image, so that
all see the same load of the machine. Before the rounds all sides must give the same bits. Times
are printed beside their aims; a missed aim is no failure.

Invariant: one run measures everything that its tables compare. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import environment
from media_rows import Cell, family_rows, part_rows, pixel_rows, stage_rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from media_rows import Row

HOME = environment.TOOLS / "bench/media"
CI = environment.ROOT / "ci"

#: A round repeats a call for about this many seconds, and at most this many times.
_SECONDS, _MOST_CALLS = 0.05, 50


@dataclass(frozen=True)
class Taken:
    """
    Milliseconds of one call, by round.
    """

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


class Worker:
    """
    A process that measures one side.
    """

    def __init__(
        self, python: str, side: str, threads: int, images: Mapping[str, str], library: str | None = None
    ) -> None:
        """
        Start the process. `threads` limits the threads of every library that it may load.

        With *library*, the process measures this build of our module.
        """
        limits = dict.fromkeys(("SGL_MM_RS_THREADS", "OMP_NUM_THREADS"), str(threads))
        self.side = side
        self._process = subprocess.Popen(
            [python, *_program(side, library), json.dumps(images)],
            env={**os.environ, **limits},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, do: str, cell: Cell, calls: int = 1) -> dict[str, Any]:
        """
        Return the answer to one request. Raise `RuntimeError` if the worker ended instead.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"do": do, "job": cell.job, "calls": calls}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker for {self.side} ended at {cell}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """
        End the process.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _program(side: str, library: str | None) -> tuple[str, ...]:
    return (str(CI / "media_worker.py"), side) if library is None else (str(CI / "media_library.py"), library)


@contextlib.contextmanager
def workers(
    python: str,
    sides: Sequence[str],
    threads: int,
    images: Mapping[str, str],
    libraries: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Worker]]:
    """
    Run one worker for each side. *libraries* maps sides to builds of our module.
    """
    started = {side: Worker(python, side, threads, images, (libraries or {}).get(side)) for side in sides}
    try:
        yield started
    finally:
        for worker in started.values():
            worker.end()


# Measuring.


def check(row: Row, by_side: Mapping[str, Worker]) -> None:
    """
    Raise unless all cells of a job give the same bits.
    """
    digests: dict[str, dict[str, str]] = {}
    for name, cell in row.cells.items():
        # Two kinds of cells are not compared: torch has another decoder, and `limit` computes no pixels.
        if cell.kind != "limit" and name != "torch":
            digests.setdefault(f"{cell.kind} {cell.image} {cell.like}", {})[name] = by_side[cell.side].ask(
                "digest", cell
            )["digest"]
    for one in digests.values():
        if len(set(one.values())) > 1:
            raise RuntimeError(
                f"{row.label}: {' and '.join(one)} give different bits, so their times cannot be compared"
            )


def measure(row: Row, by_side: Mapping[str, Worker], rounds: int) -> dict[str, Taken]:
    """
    Measure all cells once per round, in a rotating order; a first call of each warms up and sets the number of calls.
    """
    names = list(row.cells)
    first = {name: by_side[cell.side].ask("time", cell)["wall"] for name, cell in row.cells.items()}
    calls = {name: min(_MOST_CALLS, math.ceil(_SECONDS / seconds)) for name, seconds in first.items()}
    taken = {name: Taken() for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in (*names[shift:], *names[:shift]):
            cell = row.cells[name]
            answer = by_side[cell.side].ask("time", cell, calls[name])
            taken[name].cpu.append(answer["cpu"] * 1000 / cell.batch)
            taken[name].wall.append(answer["wall"] * 1000 / cell.batch)
    return taken


def main(*, rounds: int, oracles: bool, json_file: str | None) -> int:
    """
    Set up, measure, print; write JSON if asked to.
    """
    home = environment.oracle_environment() if oracles else environment.main_environment()
    home.ready()
    HOME.mkdir(parents=True, exist_ok=True)
    images = images_of(home.python)
    load = [os.getloadavg()[0]]
    report: dict[str, object] = {"machine": platform.platform(), "cores": os.cpu_count(), "rounds": rounds}
    sides = ("ours", "pillow", *(("hf_pil", "hf_torchvision") if oracles else ()))
    tables = {}
    for threads in (1, 2):
        with workers(home.python, sides, threads, images) as by_side:
            if threads == 1:
                report["peak"] = peaks(by_side, images, oracles=oracles)
            for title, rows, show in _plan(threads, oracles=oracles):
                full = f"{title}; {threads} thread{'s' if threads > 1 else ''}; {rounds} interleaved rounds"
                tables[full] = table(full, rows, show, by_side, rounds)
    load.append(os.getloadavg()[0])
    print(f"\nload of the machine (1 minute): {load[0]:.1f} before, {load[1]:.1f} after; {os.cpu_count()} cores")
    if json_file:
        Path(json_file).write_text(
            json.dumps({**report, "load": load, "tables": tables}, indent=2) + "\n", encoding="utf-8"
        )
    return 0


def images_of(python: str) -> dict[str, str]:
    """
    Write the files that all sides read; return their paths by name.
    """
    command = [python, str(CI / "media_images.py"), str(HOME)]
    found: dict[str, str] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def _plan(threads: int, *, oracles: bool) -> Iterator[tuple[str, list[Row], Show]]:
    yield "bytes to pixel_values, one image", pixel_rows(1, oracles=oracles), TIMES
    if threads == 1:
        yield "stages of ours, pil", stage_rows(), STAGES
        yield "parts alone", part_rows(oracles=oracles), TIMES
    yield "other families", family_rows(), TIMES
    yield "bytes to pixel_values, each of a batch of 8", pixel_rows(8, oracles=oracles), TIMES


def table(title: str, rows: Sequence[Row], show: Show, by_side: Mapping[str, Worker], rounds: int) -> dict[str, object]:
    """
    Measure and print row by row.
    """
    columns = show.columns(rows)
    width = max(len(row.label) for row in rows)
    print(f"\n{title}\n{show.legend}\n\n{'':{width}}" + "".join(f"  {name:>22}" for name in columns), flush=True)
    found: dict[str, object] = {}
    for row in rows:
        check(row, by_side)
        taken = measure(row, by_side, rounds)
        print(
            f"{row.label:<{width}}" + "".join(f"  {text:>22}" for text in show.texts(row, taken, columns)), flush=True
        )
        found[row.label] = {name: asdict(one) for name, one in taken.items()}
    return found


def peaks(by_side: Mapping[str, Worker], images: Mapping[str, str], *, oracles: bool) -> dict[str, object]:
    """
    Measure and print the memory of the first call, in workers that have not run a job yet.
    """
    rows = pixel_rows(1, oracles=oracles)
    # All peaks come first: later requests start threads, and a child of a process with threads may deadlock.
    asked = {
        row.label: {
            name: by_side[cell.side].ask("peak", cell)["peak"] for name, cell in row.cells.items() if name != "limit"
        }
        for row in rows
    }
    print("\npeak memory of the first call, MB\n")
    width = max(map(len, asked))
    found: dict[str, object] = {}
    for row in rows:
        cell, ours = row.cells["ours, pil"], by_side["ours"]
        sizes = (
            os.path.getsize(images[cell.image]),
            *(ours.ask("digest", one)["bytes"] for one in (Cell("ours", "decode", cell.image), cell)),
        )
        texts = [f"{name} {value / 1e6:.1f}" for name, value in asked[row.label].items()]
        print(f"{row.label:<{width}}  file + decoded + patches {sum(sizes) / 1e6:.1f}; " + ", ".join(texts), flush=True)
        found[row.label] = {"needed": sum(sizes), **asked[row.label]}
    return found


# Printing.


@dataclass(frozen=True)
class Show:
    """
    How a table is printed.
    """

    legend: str
    columns: Callable[[Sequence[Row]], list[str]]
    texts: Callable[[Row, Mapping[str, Taken], Sequence[str]], list[str]]


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.cells))


def _times(row: Row, taken: Mapping[str, Taken], columns: Sequence[str]) -> list[str]:
    texts = []
    for name in columns:
        one = taken.get(name)
        texts.append(f"{min(one.cpu):.2f} | {median(one.cpu):.2f}; {median(one.wall):.1f}" if one else "")
    return [*texts, "   " + ", ".join(_ratios(row, taken))]


def _ratios(row: Row, taken: Mapping[str, Taken]) -> Iterator[str]:
    for name, one in taken.items():
        if name.startswith("ours"):
            continue
        ours = (
            "ours, torchvision" if name in ("HF torchvision", "torch") and "ours, torchvision" in taken else "ours, pil"
        )
        ratio = min(one.cpu) / min(taken[ours].cpu)
        aim = f" (aim {row.aims[name]:g})" if name in row.aims else ""
        yield f"{1 / ratio:.2f}x the limit{aim}" if name == "limit" else f"{ratio:.1f}x {name}{aim}"


def _stages(_row: Row, taken: Mapping[str, Taken], _columns: Sequence[str]) -> list[str]:
    least = {name: min(one.cpu) for name, one in taken.items()}
    fused = least["bitmap"] - least["bitmap decode"]
    values = (
        least["all"],
        least["decode"],
        fused,
        least["fitted"] - least["fitted decode"],
        least["all"] - least["decode"] - fused,
    )
    return [f"{value:.2f}" for value in values]


TIMES = Show(
    "CPU ms of one image (user + system), minimum | median; then wall ms, median. Ratios compare the minima",
    _columns,
    _times,
)
STAGES = Show(
    "CPU ms, differences of minima. The resize writes the patches; `patches alone` is an image that needs no resize",
    lambda _rows: ["all", "decode", "resize into patches", "patches alone", "the rest"],
    _stages,
)
