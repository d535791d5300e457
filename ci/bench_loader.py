"""
Measure the toolkit against its promises, one per row, and against other import hooks.

A *promise* is a stated limit of the cost of an import. It is a ratio to the plain import of the
same library in the same run, because a ratio is valid on any machine. The milliseconds beside it
are those of a machine on which the plain import takes 10 ms.

All compared commands run once per round, in a rotating order, so that all see
the same load of the machine. Times are printed, but have no limit. *Counts* (processes
started, files opened, modules imported, compilations) do not depend on the
machine; tests check them too.

Invariant: one run measures everything that its tables compare. Standard library
only; `strace` is used if it is installed.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import bare
import bench_building
from environment import TOOLS
from grown import MODULE, grow
from imports import Run, Way, code_that_imports, measure, median, spread
from peers import Peer, peers
from promises import Row, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOME = TOOLS / "bench"

#: The size to which the promises apply, and the sizes from which the cost of one more file is computed.
CRATES, FILES = 4, 300
_SIZES = (50, FILES, 1000, 3000)

#: How many modules of other packages a process imports to measure what the hook costs them.
_FOREIGN = 300


@dataclass(frozen=True)
class Bench:
    """
    Settings of one run.
    """

    home: Path
    rounds: int
    peers: tuple[Peer, ...]


def main(*, rounds: int, with_peers: bool, json_file: str | None) -> int:
    """
    Set up, measure, print; write JSON if asked to.
    """
    HOME.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=HOME, prefix="loader-") as folder:
        bench = Bench(Path(folder), rounds, tuple(peers()) if with_peers else ())
        rows, runs = _imports(bench)
        rows += [*_starts(bench), *bench_building.rows(bench.home, rounds, bench.peers)]
    print(f"\n{rounds} interleaved rounds; medians [quartiles]; CPU is user + system of the whole process\n")
    show(rows)
    if json_file:
        report = {
            "machine": platform.platform(),
            "rounds": rounds,
            "rows": [asdict(row) for row in rows],
            "imports": {
                name: {"cpu_ms": spread(run.cpu for run in of), "wall_ms": spread(run.wall for run in of)}
                for name, of in runs.items()
            },
        }
        Path(json_file).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


# Warm imports.


def _imports(bench: Bench) -> tuple[list[Row], dict[str, list[Run]]]:
    by_size, plain = _warm_ways(bench)
    ours = by_size[FILES]
    call = Way("ours, by call", (*ours.command[:-1], _code_that_calls(bench, FILES)), ours.environment)
    ways = [plain, call, *by_size.values(), *(way for peer in bench.peers for way in (peer.hooked, peer.plain))]
    runs = measure(ways, bench.rounds)
    base = median(run.cpu for run in runs[plain.name])
    rows = [Row("plain import of the same .so", "", _shown(runs[plain.name]))]
    for name, way in (("import", ours), ("load_rust_extension", call)):
        rows.append(
            Row(
                f"warm {name}, {CRATES} crates, {FILES} files",
                "at most 1.25x, +2.5 ms",
                f"{_shown(runs[way.name])}  {_against(runs[way.name], base)}",
            )
        )
        rows.append(Row("  counted", "opens only the record", _counts(way)))
    slope, fixed = _line([(size, median(run.cpu for run in runs[way.name])) for size, way in by_size.items()])
    rows.append(
        Row(
            "warm import without any file",
            "at most 1.15x, +1.5 ms",
            f"{(fixed - base) * 1e3:+.2f} ms, {fixed / base:.2f}x  (extrapolated from {len(by_size)} sizes)",
        )
    )
    seen = ", ".join(f"{size}: {_against(runs[way.name], base)}" for size, way in by_size.items())
    rows.append(
        Row(
            "cost of 100 further files",
            "at most +0.03x, +0.3 ms",
            f"{slope * 1e5:+.2f} ms, {100 * slope / base:+.3f}x  ({seen})",
        )
    )
    for peer in bench.peers:
        own = median(run.cpu for run in runs[peer.plain.name])
        rows.append(
            Row(
                f"peer: {peer.hooked.name}, warm",
                "",
                f"{_shown(runs[peer.hooked.name])}  {_against(runs[peer.hooked.name], own)}",
            )
        )
    return rows, runs


def _warm_ways(bench: Bench) -> tuple[dict[int, Way], Way]:
    """
    Return a warm import for each size, and the plain import of the same library.
    """
    ways = {}
    for size in _SIZES:
        grown = grow(bench.home / f"workspace-{size}", crates=CRATES, files=size)
        hooked = bare.hooked(bench.home / f"hooked-{size}", grown, bench.home / f"cache-{size}")
        ways[size] = Way(f"ours, {size} files", (hooked.python, "-c", code_that_imports(MODULE)), hooked.environment)
        ways[size].run()
    settle(list(ways.values()))
    plain = bare.plain(bench.home / "plain", [ways[FILES].run().library])
    return ways, Way("plain", (plain.python, "-c", code_that_imports(MODULE)), plain.environment)


def settle(ways: Sequence[Way]) -> None:
    """
    Wait until the timestamps of the new files are trusted, and let each way write its record.
    """
    time.sleep(2.1)
    for way in ways:
        way.run()
        if "rust_ext_loader._ensure" in _modules(way):
            raise RuntimeError(f"{way.name}: the second import is not warm")


def _code_that_calls(bench: Bench, size: int) -> str:
    workspace = str(bench.home / f"workspace-{size}")
    return code_that_imports(
        MODULE,
        statement=f"import rust_ext_loader; rust_ext_loader.load_rust_extension({MODULE!r}, workspace={workspace!r})",
    )


def _modules(way: Way) -> list[str]:
    code = way.command[-1] + "print(*sorted(sys.modules))"
    done = subprocess.run(
        [*way.command[:-1], code],
        check=True,
        env=way.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()[-1].split()


def _counts(way: Way) -> str:
    """
    Count what one warm import starts, opens and imports.
    """
    ours = [name for name in _modules(way) if name.startswith("rust_ext_loader")]
    counts = {"modules of ours": len(ours), **_system_calls(way)}
    return ", ".join(f"{label} {count}" for label, count in counts.items())


def _system_calls(way: Way) -> dict[str, int]:
    if not shutil.which("strace"):
        return {}
    calls = "trace=execve,openat,open,stat,lstat,newfstatat,flock"
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        command = ["strace", "-f", "-qq", "-o", str(trace), "-e", calls, *way.command]
        done = subprocess.run(command, check=False, env=way.environment, stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode != 0:
            return {}
        # A line is "pid call(arguments) = result"; a call on two lines counts once, at its first line.
        lines = [line.split(maxsplit=1)[1] for line in trace.read_text(errors="replace").splitlines() if "(" in line]
    count = Counter(line.partition("(")[0] for line in lines)
    return {
        "processes": count["execve"] - 1,
        "locks": count["flock"],
        "sources opened": sum("open" in line and ".rs" in line for line in lines),
        "records opened": sum("open" in line and "/records/" in line for line in lines),
        "stats": count["stat"] + count["lstat"] + count["newfstatat"],
    }


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """
    Return slope and intercept of the line through the points.
    """
    mean_x, mean_y = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return slope, mean_y - slope * mean_x


# Starts of an interpreter that imports no extension.


def _starts(bench: Bench) -> list[Row]:
    foreign = bench.home / "foreign"
    foreign.mkdir()
    for number in range(_FOREIGN):
        (foreign / f"foreign{number}.py").touch()
    many = "".join(f"import foreign{number}\n" for number in range(_FOREIGN))
    grown = grow(bench.home / "workspace-start", crates=CRATES, files=50)
    hooked, plain = (
        bare.hooked(bench.home / "hooked-start", grown, bench.home / "cache-start"),
        bare.plain(bench.home / "plain-start", []),
    )
    interpreters = {"ours": (hooked.python, hooked.environment), "plain": (plain.python, plain.environment)}
    pairs = [("ours", "plain")]
    for peer in bench.peers:
        if peer.at_start:
            interpreters |= {way.name: (way.command[0], dict(way.environment)) for way in (peer.hooked, peer.plain)}
            pairs.append((peer.hooked.name, peer.plain.name))
    ways = [
        Way(f"{name}, {label}", (python, "-c", f"{code}print(0, None)"), {**variables, "PYTHONPATH": str(foreign)})
        for name, (python, variables) in interpreters.items()
        for label, code in (("start", ""), ("foreign", many))
    ]
    runs = {name: [run.cpu for run in of] for name, of in measure(ways, bench.rounds).items()}
    return [row for name, without in pairs for row in _start_rows(runs, name, without)]


def _start_rows(runs: Mapping[str, Sequence[float]], name: str, without: str) -> list[Row]:
    start = _difference(runs[f"{name}, start"], runs[f"{without}, start"])
    plain = median(runs[f"{without}, start"])
    more = _difference(runs[f"{name}, foreign"], runs[f"{without}, foreign"])
    label, at_start, per_import = (
        ("hook installed", "at most 1.06x, +0.5 ms", "nothing measurable")
        if name == "ours"
        else (f"peer: {name}", "", "")
    )
    return [
        Row(
            f"{label}: start of an interpreter",
            at_start,
            f"{start * 1e3:+.2f} ms, {1 + start / plain:.2f}x  ({_shown_seconds(runs[f'{name}, start'])})",
        ),
        Row(
            f"{label}: each of {_FOREIGN} foreign imports",
            per_import,
            f"{(more - start) / _FOREIGN * 1e6:+.1f} us CPU",
        ),
    ]


def _difference(one: Sequence[float], other: Sequence[float]) -> float:
    """
    Return the median of the differences, round by round.
    """
    return median(a - b for a, b in zip(one, other, strict=True))


def _shown(runs: Sequence[Run]) -> str:
    return _shown_seconds([run.cpu for run in runs])


def _shown_seconds(seconds: Sequence[float]) -> str:
    low, middle, high = spread(seconds)
    return f"{middle:.2f} [{low:.2f} .. {high:.2f}] ms"


def _against(runs: Sequence[Run], base: float) -> str:
    cpu = median(run.cpu for run in runs)
    return f"{(cpu - base) * 1e3:+.2f} ms, {cpu / base:.2f}x"
