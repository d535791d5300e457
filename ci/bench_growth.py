"""
Measure how the cost of an import grows with the number of files and crates of a workspace.

For each size it measures a warm import against a plain import of the same file,
a decision by content (everything is built, but the record is missing), and the
time that each stage of that decision takes.

Invariant: a stage is a function of the toolkit. Its time is measured by a
wrapper and excludes the stages that it calls. Time outside all stages has its
own row. Standard library only.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import bare
import chart
from bench_loader import HOME, settle
from environment import ROOT
from grown import MODULE, grow
from imports import Way, code_that_imports, measure, median

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: (crates, files) of the workspaces: first the number of files grows in four crates, then the number of crates.
_BY_FILES = tuple((4, files) for files in (10, 100, 1000, 10_000))
_BY_CRATES = tuple((crates, 1000) for crates in (1, 5, 20, 50))

_WARM, _CONTENT, _DISCOVERY, _REST = "warm import, over plain", "decision by content", "discovery", "everything else"

#: Stages of a decision by content: module, function, label.
_STAGES = (
    ("declare._discover", "extensions", _DISCOVERY),
    ("facts._closure", "of", "dependencies and lockfile"),
    ("facts._sources", "Sources.add_package", "listing and hashing files"),
    ("facts._inputs", "gather", "manifests and digests"),
    ("facts._environment", "gather", "environment and configuration"),
    ("facts._toolchain", "probe", "toolchain (remembered answer)"),
    ("facts._fingerprint", "_digest", "keys"),
    ("cache._store", "look_up", "looking up"),
    ("cache._store", "remember", "facts for explanations"),
    ("_note", "_write_record", "the record"),
)

# Program of a separate interpreter: prints what `Way` reads, and writes the stages to a file.
_TIMED = """
import json, sys
from time import process_time as clock
start = clock()
from importlib import import_module
import rust_ext_loader._ensure
spent, inner = {{"imports of the toolkit": clock() - start}}, [0.0]
def timed(function, label):
    def run(*arguments, **named):
        began = clock()
        inner.append(0.0)
        try:
            return function(*arguments, **named)
        finally:
            whole = clock() - began
            spent[label] = spent.get(label, 0.0) + whole - inner.pop()
            inner[-1] += whole
    return run
for module, name, label in {stages!r}:
    scope = import_module("rust_ext_loader." + module)
    *owners, last = name.split(".")
    for owner in owners:
        scope = getattr(scope, owner)
    setattr(scope, last, timed(getattr(scope, last), label))
import {module}
whole = clock() - start
spent[{rest!r}] = whole - sum(spent.values())
json.dump(spent, open({out!r}, "w"))
print(whole, sys.modules[{module!r}].__file__)
"""


@dataclass(frozen=True)
class Size:
    """
    The measurements of one workspace.
    """

    crates: int
    files: int
    #: Milliseconds of CPU by label: warm, by content, then the stages.
    spent: dict[str, float]


def main(*, rounds: int, svg: str, json_file: str | None) -> int:
    """
    Make the workspaces, measure, print, plot.
    """
    HOME.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=HOME, prefix="growth-") as folder:
        by_files = [_measure(Path(folder), crates, files, rounds) for crates, files in _BY_FILES]
        by_crates = [_measure(Path(folder), crates, files, rounds) for crates, files in _BY_CRATES]
    _print(f"files of {_BY_FILES[0][0]} crates", [(size.files, size.spent) for size in by_files])
    _print(f"crates of {_BY_CRATES[0][1]} files", [(size.crates, size.spent) for size in by_crates])
    _plot(Path(svg), by_files, by_crates)
    if json_file:
        sizes = [
            {"crates": size.crates, "files": size.files, "milliseconds": size.spent} for size in (*by_files, *by_crates)
        ]
        Path(json_file).write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(home: Path, crates: int, files: int, rounds: int) -> Size:
    print(f"{crates} crates, {files} files ...", flush=True)
    home = home / f"{crates}-{files}"
    cache = home / "cache"
    grown = grow(home / "workspace", crates=crates, files=files)
    hooked = bare.hooked(home / "hooked", grown, cache)
    warm = Way("warm", (hooked.python, "-c", code_that_imports(MODULE)), hooked.environment)
    library = warm.run().library
    settle([warm])
    bare_plain = bare.plain(home / "plain", [library])
    runs = measure(
        [warm, Way("plain", (bare_plain.python, "-c", code_that_imports(MODULE)), bare_plain.environment)], rounds
    )
    spent = {_WARM: (median(run.cpu for run in runs["warm"]) - median(run.cpu for run in runs["plain"])) * 1000}
    spent |= _by_content(home, hooked, cache, rounds)
    shutil.rmtree(home)
    return Size(crates, files, spent)


def _by_content(home: Path, hooked: bare.Bare, cache: Path, rounds: int) -> dict[str, float]:
    out = home / "stages"
    code = _TIMED.format(stages=_STAGES, module=MODULE, rest=_REST, out=str(out))
    way = Way("by content", (hooked.python, "-c", code), hooked.environment)
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        shutil.rmtree(cache / "records")
        statement = way.run().statement
        for name, seconds in {_CONTENT: statement, **json.loads(out.read_bytes())}.items():
            taken.setdefault(name, []).append(seconds * 1000)
    missing = {label for _, _, label in _STAGES} - taken.keys()
    if missing:
        raise RuntimeError(f"these stages no longer run in a decision: {', '.join(sorted(missing))}")
    return {name: median(values) for name, values in taken.items()}


def _print(title: str, sizes: Sequence[tuple[int, dict[str, float]]]) -> None:
    print(f"\n{title}: milliseconds of CPU, medians; a warm import is the whole process\n")
    print(f"{'':<34}" + "".join(f"{size:>10}" for size, _ in sizes) + f"{'one more':>14}")
    first, last = sizes[0], sizes[-1]
    stages = sorted(last[1].keys() - {_WARM, _CONTENT}, key=lambda name: -last[1][name])
    for name in (_WARM, _CONTENT, *stages):
        more = (last[1][name] - first[1].get(name, 0.0)) / (last[0] - first[0]) * 1000
        label = name if name in (_WARM, _CONTENT) else f"  {name}"
        print(f"{label:<34}" + "".join(f"{spent.get(name, 0.0):>10.2f}" for _, spent in sizes) + f"{more:>11.2f} us")


def _plot(path: Path, by_files: Sequence[Size], by_crates: Sequence[Size]) -> None:
    def panel(title: str, points: Sequence[tuple[int, dict[str, float]]]) -> chart.Panel:
        lines = {name: [(size, spent[name]) for size, spent in points] for name in (_CONTENT, _DISCOVERY, _WARM)}
        return chart.Panel(title, lines)

    panels = (
        panel("files of 4 crates", [(size.files, size.spent) for size in by_files]),
        panel("crates of 1000 files", [(size.crates, size.spent) for size in by_crates]),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(chart.svg("milliseconds of CPU", panels), encoding="utf-8")
    print(f"\nplotted to {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
