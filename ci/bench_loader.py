"""
Answer what our import costs: against the plain import of the same file, and against the peers.

Every way runs once per round, in an order that turns from round to round, so
that all meet the same machine. Times are reported, never judged; *counts*
(processes started, modules imported, files opened) are what can be relied on.

Invariant: one run of this measures everything that its table compares.
Standard library only; `strace` is used where it is present.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import environment
from imports import Run, Way, median, own_environment, pair, quantiles
from peers import peers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MODULE = "sglang.srt.rust_extensions._multimodal"


@dataclass(frozen=True)
class Line:
    """
    One row of the table: milliseconds, medians with their quartiles, and CPU against its own plain import.
    """

    name: str
    cpu: tuple[float, float, float]
    wall: tuple[float, float, float]
    statement: tuple[float, float, float]
    extra_cpu: float
    ratio: float


def main(*, rounds: int, with_peers: bool, json_file: str | None) -> int:
    """
    Set up, measure, print; write JSON where asked.
    """
    environment.main_environment().ready()
    python = environment.main_environment().python
    own = own_environment()
    with pair(python, MODULE, own) as ours:
        pairs = [ours, *(peers() if with_peers else ())]
        _warm_up(pairs)
        measured = _measure([way for couple in pairs for way in couple], rounds)
        counts = {way.name: _counts(way) for way in ours}
    lines = [line for hooked, plain in pairs for line in _compare(measured[hooked.name], measured[plain.name], hooked.name, plain.name)]
    start = _start_up(python, own)
    _print(lines, counts, start, rounds)
    if json_file:
        report = {
            "machine": platform.platform(),
            "rounds": rounds,
            "lines": [asdict(line) for line in lines],
            "counts": counts,
            "start": start,
        }
        Path(json_file).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def _warm_up(pairs: Sequence[tuple[Way, Way]]) -> None:
    for couple in pairs:
        for way in couple:
            for _ in range(3):
                way.run()


def _measure(ways: Sequence[Way], rounds: int) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {way.name: [] for way in ways}
    for turn in range(rounds):
        shift = turn % len(ways)
        for way in (*ways[shift:], *ways[:shift]):
            runs[way.name].append(way.run())
    return runs


def _compare(hooked: Sequence[Run], plain: Sequence[Run], name: str, plain_name: str) -> tuple[Line, Line]:
    base = median(run.cpu for run in plain)
    return _line(name, hooked, base), _line(plain_name, plain, base)


def _line(name: str, runs: Sequence[Run], base: float) -> Line:
    cpu = _spread(runs, lambda run: run.cpu)
    return Line(
        name,
        cpu,
        _spread(runs, lambda run: run.wall),
        _spread(runs, lambda run: run.statement),
        round(cpu[1] - base * 1000, 6) + 0.0,
        cpu[1] / (base * 1000),
    )


def _spread(runs: Sequence[Run], what: Callable[[Run], float]) -> tuple[float, float, float]:
    low, middle, high = quantiles((what(run) * 1000 for run in runs), n=4, method="inclusive")
    return low, middle, high


def _counts(way: Way) -> dict[str, object]:
    """
    What one warm import starts, opens and imports.
    """
    code = way.command[-1] + "print(len(sys.modules), *sorted(name for name in sys.modules if name.startswith('rust_ext_loader')))"
    done = subprocess.run(
        [*way.command[:-1], code], check=True, env=way.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    modules, *toolkit = done.stdout.splitlines()[1].split()
    return {"modules": int(modules), "toolkit_modules": toolkit, **_system_calls(way)}


def _system_calls(way: Way) -> dict[str, int]:
    if not shutil.which("strace"):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        command = [
            "strace",
            "-f",
            "-qq",
            "-o",
            str(trace),
            "-e",
            "trace=execve,openat,open,stat,lstat,newfstatat,flock,fcntl",
            *way.command,
        ]
        done = subprocess.run(command, check=False, env=way.environment, stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode != 0:
            return {}
        # A line is "pid call(arguments) = result"; a call that was cut in two is counted at its start.
        calls = Counter(
            line.split(maxsplit=1)[1].partition("(")[0] for line in trace.read_text(errors="replace").splitlines() if "(" in line
        )
    return {
        "execve": calls["execve"] - 1,
        "opened": calls["openat"] + calls["open"],
        "stat": calls["stat"] + calls["lstat"] + calls["newfstatat"],
        "flock": calls["flock"],
    }


_START_UP = """
import sys, time, timeit
finder = next(finder for finder in sys.meta_path if hasattr(finder, "rust_ext_prefixes"))
line = next(line for path in sys.argv[1:] for line in open(path) if "rust_ext_prefixes" in line)
def start():
    saved, sys.meta_path = sys.meta_path, [item for item in sys.meta_path if item is not finder]
    exec(line)
    sys.meta_path = saved
print(min(timeit.repeat(start, number=200, repeat=5)) / 200 * 1e6)
print(min(timeit.repeat(lambda: finder.find_spec("json.decoder", None, None), number=20000, repeat=5)) / 20000 * 1e6)
"""


def _start_up(python: str, variables: dict[str, str]) -> dict[str, float]:
    """
    Microseconds that the stub adds to a start of the interpreter, and to the import of a module that is not ours.
    """
    files = [str(path) for path in environment.VENV.glob("**/site-packages/_sglang_rust_extensions_hook.pth")]
    done = subprocess.run([python, "-c", _START_UP, *files], check=True, env=variables, stdout=subprocess.PIPE, text=True)
    start, foreign = map(float, done.stdout.split())
    return {"interpreter_start_us": start, "foreign_import_us": foreign}


def _print(lines: Sequence[Line], counts: dict[str, dict[str, object]], start: dict[str, float], rounds: int) -> None:
    print(f"\nwarm import in a fresh process, {rounds} interleaved rounds, milliseconds: median [quartiles]\n")
    print(f"{'':<38}{'CPU, user + system':>27}{'wall':>27}{'import statement':>27}{'CPU against plain':>24}")
    for line in lines:
        cells = "".join(f"{f'{middle:.2f} [{low:.2f} .. {high:.2f}]':>27}" for low, middle, high in (line.cpu, line.wall, line.statement))
        print(f"{line.name:<38}{cells}{f'{line.extra_cpu:+.2f} ms, {line.ratio:.2f}x':>24}")
    print("\ncounts of one warm import")
    for name, count in counts.items():
        print(f"  {name:<8}" + ", ".join(f"{what} {value}" for what, value in count.items()))
    print(
        f"\nthe stub: {start['interpreter_start_us']:.1f} us at interpreter start, {start['foreign_import_us']:.2f} us per foreign import"
    )
