"""
Measure the edit loop: the time from one edited line until a new process has imported the module.

Each module is built by every way of `edit_ways`, ours and others. A round edits one line for each way
and runs it; the order rotates, so that all see the same load of the machine. Afterwards a call of
each module measures the speed of the code that each way built.

Every import must load another library than the import before: a stale library would look fast.

Invariant: works on copies, with an own cache. One run measures everything that its tables compare.
Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import edit_ways
import environment
from edit_modules import SUBJECTS
from edit_ways import ABSENT, FULL, MATURIN, OURS
from promises import Row, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edit_modules import Subject
    from edit_ways import EditWay, Took

HOME = environment.TOOLS / "bench"
WORKER = environment.ROOT / "ci/edit_calls.py"

#: Promises: seconds of waiting for any module, and how many times faster than maturin on the server.
_MOST_SECONDS, _FASTER = 5.0, 5.0
#: The module to which the comparison with maturin applies.
_SERVER = "_server"
#: Code counts as equally fast if its call takes at most this much longer than ours in the edit tier.
_EQUAL_SPEED = 1.1
#: Rounds of calls per library.
_CALL_ROUNDS = 7


@dataclass
class Result:
    """
    What was measured for one way and one module.
    """

    #: The first edit after the first build, when no incremental state exists yet.
    first: Took | None = None
    #: The later edits.
    edits: list[Took] = field(default_factory=list)
    #: CPU seconds of one call, by round.
    calls: list[float] = field(default_factory=list)

    @property
    def wall(self) -> float:
        """
        Median of the seconds of waiting.
        """
        return median(took.wall for took in self.edits)


def main(*, modules: Sequence[str], rounds: int, with_peers: bool, json_file: str | None) -> int:
    """
    Set up, measure, print; write JSON if asked to.
    """
    environment.main_environment().ready()
    HOME.mkdir(parents=True, exist_ok=True)
    load = [os.getloadavg()[0]]
    found: dict[str, dict[str, Result]] = {}
    with tempfile.TemporaryDirectory(dir=HOME, prefix="edit-") as folder:
        for name in modules:
            found[name] = _measure(Path(folder), SUBJECTS[name], rounds, with_peers=with_peers)
            _print_table(SUBJECTS[name], found[name], rounds)
    load.append(os.getloadavg()[0])
    print("\npromises\n")
    show([row for name, results in found.items() for row in _promises(name, results)])
    print(f"\nload of the machine (1 minute): {load[0]:.1f} before, {load[1]:.1f} after; {os.cpu_count()} cores")
    if json_file:
        report = {
            "machine": platform.platform(),
            "cores": os.cpu_count(),
            "rounds": rounds,
            "load": load,
            "modules": {name: {way: asdict(one) for way, one in results.items()} for name, results in found.items()},
        }
        Path(json_file).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


# Measuring.


def _measure(home: Path, subject: Subject, rounds: int, *, with_peers: bool) -> dict[str, Result]:
    ways = edit_ways.ways(home, subject, with_peers=with_peers)
    libraries: dict[str, str] = {}
    for way in ways:
        print(f"{subject.leaf}: first build, {way.name} ...", end="", flush=True)
        start = time.perf_counter()
        way.edit(0)
        libraries[way.name] = _digest(way.run().library)
        print(f" {time.perf_counter() - start:.0f} s", flush=True)
    results = {way.name: Result() for way in ways}
    last: dict[str, Took] = {}
    for turn in range(rounds + 1):
        shift = turn % len(ways)
        for way in (*ways[shift:], *ways[:shift]):
            way.edit(turn + 1)
            took = last[way.name] = way.run()
            _require_new(way, took, libraries)
            if turn == 0:
                results[way.name].first = took
            else:
                results[way.name].edits.append(took)
    # Ways that share a target folder replace each other's library, so each runs once more and its library is copied.
    kept = {way.name: _copy(home, subject, index, way) for index, way in enumerate(ways)}
    _measure_calls(subject, kept, results)
    return results


def _require_new(way: EditWay, took: Took, libraries: dict[str, str]) -> None:
    digest = _digest(took.library)
    if digest == libraries[way.name]:
        raise RuntimeError(f"{way.name}: the import after an edit of {way.subject.leaf} loaded the old library")
    libraries[way.name] = digest
    if way.name in (OURS, FULL) and edit_ways.in_edit_tier(took.library) != (way.name == OURS):
        raise RuntimeError(f"{way.name}: {took.library} was built in the other tier")


def _digest(library: str) -> str:
    return hashlib.sha256(_file_of(library).read_bytes()).hexdigest()


def _file_of(library: str) -> Path:
    """
    Return the library, also if the imported module is a package around it.
    """
    path = Path(library)
    if path.suffix == ".py":
        (path,) = (other for other in path.parent.iterdir() if other.suffix == ".so")
    return path


def _copy(home: Path, subject: Subject, index: int, way: EditWay) -> str:
    folder = home / "libraries" / f"{subject.leaf}-{index}"
    folder.mkdir(parents=True)
    return str(shutil.copyfile(_file_of(way.run().library), folder / f"{subject.leaf}.so"))


def _measure_calls(subject: Subject, libraries: Mapping[str, str], results: Mapping[str, Result]) -> None:
    """
    Call every library once per round, each in a separate process.
    """
    names = list(libraries)
    with contextlib.ExitStack() as running:
        workers = {name: running.enter_context(_worker(subject, library)) for name, library in libraries.items()}
        for turn in range(_CALL_ROUNDS):
            shift = turn % len(names)
            for name in (*names[shift:], *names[:shift]):
                worker = workers[name]
                print(file=worker.stdin, flush=True)
                line = worker.stdout.readline()  # type: ignore[union-attr]  # a pipe
                if not line:
                    raise RuntimeError(f"{name}: calling {subject.leaf} failed")
                results[name].calls.append(float(line))


@contextlib.contextmanager
def _worker(subject: Subject, library: str) -> Iterator[subprocess.Popen[str]]:
    command = [environment.main_environment().python, str(WORKER), subject.leaf, library]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


# Printing.


def _print_table(subject: Subject, results: Mapping[str, Result], rounds: int) -> None:
    print(
        f"\n{subject.leaf}: from an edited line of {subject.package}/{subject.source} to the finished import; "
        f"{rounds} interleaved rounds\n"
        "seconds of waiting and of CPU (user + system, all processes): median [least .. most]; the first edit is not\n"
        f"among them: for `{OURS}` it also makes the incremental state\n"
        f"call: CPU time of {subject.call}, minimum, and its ratio to `{FULL}`,\n"
        "which is the declared profile for the same sources\n"
    )
    width = max(map(len, (*results, *ABSENT)))
    print(f"{'':{width}}  {'first edit':>10}  {'waiting':>22}  {'CPU':>22}  {'call':>10}")
    for name, one in results.items():
        assert one.first is not None
        walls, cpus = [took.wall for took in one.edits], [took.cpu for took in one.edits]
        call = min(one.calls)
        print(
            f"{name:<{width}}  {one.first.wall:>8.2f} s  {_range(walls):>22}  {_range(cpus):>22}  "
            f"{call * 1000:>7.2f} ms  {_speed(results, name):>5.2f}x"
        )
    for name, reason in ABSENT.items():
        if not subject.is_small and any(each.startswith("maturin") for each in results):
            print(f"{name:<{width}}  {reason}")
    print(flush=True)


def _range(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.2f} [{min(seconds):.2f} .. {max(seconds):.2f}]"


def _speed(results: Mapping[str, Result], name: str) -> float:
    return min(results[name].calls) / min(results[FULL].calls)


def _promises(name: str, results: Mapping[str, Result]) -> Iterator[Row]:
    ours = results[OURS]
    yield Row(
        f"{name}: one edited line",
        f"at most {_MOST_SECONDS:g} s",
        f"{ours.wall:.2f} s; {_kept(ours.wall <= _MOST_SECONDS)}",
    )
    if name == _SERVER and MATURIN in results:
        ratio = results[MATURIN].wall / ours.wall
        yield Row(
            f"{name}: against `{MATURIN}`",
            f"at least {_FASTER:g}x faster",
            f"{ratio:.1f}x; {_kept(ratio >= _FASTER)}",
        )
    others = {
        other: one
        for other, one in results.items()
        if other not in (OURS, FULL) and _speed(results, other) <= _speed(results, OURS) * _EQUAL_SPEED
    }
    case = f"{name}: against the fastest peer with equal code speed"
    if others:
        best = min(others, key=lambda other: others[other].wall)
        ratio = others[best].wall / ours.wall
        yield Row(case, "never slower", f"{ratio:.2f}x as fast as `{best}`; {_kept(ratio >= 1)}")
    else:
        yield Row(case, "never slower", "no peer's code is as fast")


def _kept(kept: bool) -> str:
    return "kept" if kept else "MISSED"
