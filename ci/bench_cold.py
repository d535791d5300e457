"""
Measure the first import of each module of the workspace: all caches are empty, nothing is compiled.

The modules are imported one after the other, so the second finds the dependencies that it shares
with the first. For comparison, cargo alone builds the same modules in the same order,
and each library is imported.

Invariant: every round starts with copies of the sources, an empty cache and an empty target folder.
Dependencies are downloaded before the rounds: otherwise the first way would pay for all downloads.
Standard library only.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path

import edit_ways
import environment
from edit_modules import SUBJECTS
from promises import Row, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edit_ways import EditWay, Took

HOME = environment.TOOLS / "bench"
#: In the order in which they are imported.
_MODULES = ("_multimodal", "_server", "_radix_tree")
_CARGO = "cargo build --release"
#: Promises: seconds on two quiet cores, and the ratio to cargo alone, which applies on any machine.
_FIRST_SECONDS, _ALL_SECONDS, _RATIO = 60.0, 180.0, 1.05


def main(*, rounds: int, json_file: str | None) -> int:
    """
    Set up, measure, print; write JSON if asked to.
    """
    environment.main_environment().ready()
    HOME.mkdir(parents=True, exist_ok=True)
    subprocess.run(("cargo", "fetch", "--locked"), cwd=environment.ROOT / "rust", check=True)
    load = [os.getloadavg()[0]]
    taken: dict[str, list[dict[str, Took]]] = {edit_ways.OURS: [], _CARGO: []}
    for turn in range(rounds):
        for name in (*taken,)[:: 1 if turn % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory(dir=HOME, prefix="cold-") as folder:
                taken[name].append(_round(Path(folder), name))
    load.append(os.getloadavg()[0])
    best = {name: min(found, key=_seconds) for name, found in taken.items()}
    _print_table(best, rounds)
    print("\npromises\n")
    show(_promises(best))
    print(f"\nload of the machine (1 minute): {load[0]:.1f} before, {load[1]:.1f} after; {os.cpu_count()} cores")
    if json_file:
        rows = {name: [{leaf: asdict(took) for leaf, took in one.items()} for one in taken[name]] for name in taken}
        report = {"machine": platform.platform(), "cores": os.cpu_count(), "load": load, "ways": rows}
        Path(json_file).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def _round(home: Path, name: str) -> dict[str, Took]:
    found = {}
    for leaf in _MODULES:
        print(f"{name}: {leaf} ...", end="", flush=True)
        found[leaf] = _way(home, leaf, name).run()
        print(f" {found[leaf].wall:.1f} s, {found[leaf].cpu:.1f} s of CPU", flush=True)
    return found


def _way(home: Path, leaf: str, name: str) -> EditWay:
    subject = SUBJECTS[leaf]
    if name == edit_ways.OURS:
        return edit_ways.ours(home, subject, "on")
    return next(way for way in edit_ways.cargo(home, subject) if way.name == name)


def _seconds(found: Mapping[str, Took]) -> float:
    return sum(took.wall for took in found.values())


def _cpu(found: Mapping[str, Took]) -> float:
    return sum(took.cpu for took in found.values())


def _print_table(best: Mapping[str, Mapping[str, Took]], rounds: int) -> None:
    print(f"\nfirst import from empty caches, seconds (of CPU); best of {rounds} rounds\n")
    print(f"{'':<14}" + "".join(f"{name:>26}" for name in best))
    for leaf in _MODULES:
        cells = (f"{found[leaf].wall:.1f} ({found[leaf].cpu:.1f})" for found in best.values())
        print(f"{leaf:<14}" + "".join(f"{cell:>26}" for cell in cells))
    cells = (f"{_seconds(found):.1f} ({_cpu(found):.1f})" for found in best.values())
    print(f"{'all':<14}" + "".join(f"{cell:>26}" for cell in cells))


def _promises(best: Mapping[str, Mapping[str, Took]]) -> Sequence[Row]:
    ours, cargo = best[edit_ways.OURS], best[_CARGO]
    first = ours[_MODULES[0]]
    return (
        Row(f"first import of {_MODULES[0]}", f"at most {_FIRST_SECONDS:g} s", f"{first.wall:.1f} s"),
        Row("first imports of all modules", f"at most {_ALL_SECONDS:g} s", f"{_seconds(ours):.1f} s"),
        Row(
            "first imports of all modules, compared with cargo alone",
            f"at most {_RATIO:g}x",
            f"{_seconds(ours) / _seconds(cargo):.2f}x",
        ),
    )
