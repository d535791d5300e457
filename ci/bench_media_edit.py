"""
Measure the media module as built in the edit tier, beside its declared profile.

In a copy of the workspace the module is built, one line is edited, and the module is built again:
the first build has the declared profile, the second the edit tier. The sources differ in one
message. The rows are those of the media benchmark that our module computes alone.

Invariant: works on a copy, with an own cache. Both builds must give the same bits. Standard library only.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import bench_media
import edit_ways
import environment
from bench_media import Show
from edit_modules import SUBJECTS
from media_rows import Row, family_rows, part_rows, pixel_rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_media import Taken

#: The columns: a build of the declared profile, and one in the edit tier.
_FULL, _EDIT = "declared profile", "edit tier"
#: Promise: how many times longer a call may take in the edit tier.
_MOST = 1.5


def main(*, rounds: int, json_file: str | None) -> int:
    """
    Build both, measure, print; write JSON if asked to.
    """
    home = environment.main_environment()
    home.ready()
    bench_media.HOME.mkdir(parents=True, exist_ok=True)
    images = bench_media.images_of(home.python)
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(dir=bench_media.HOME, prefix="edit-") as folder:
        libraries = _build(Path(folder))
        with bench_media.workers(home.python, list(libraries), 1, images, libraries) as by_side:
            title = f"the edit tier beside the declared profile; 1 thread; {rounds} interleaved rounds"
            found = bench_media.table(title, _rows(), _SHOW, by_side, rounds)
    load.append(os.getloadavg()[0])
    print(f"\nload of the machine (1 minute): {load[0]:.1f} before, {load[1]:.1f} after; {os.cpu_count()} cores")
    if json_file:
        report = {"machine": platform.platform(), "cores": os.cpu_count(), "rounds": rounds, "load": load}
        Path(json_file).write_text(json.dumps({**report, "tables": {title: found}}, indent=2) + "\n", encoding="utf-8")
    return 0


def _build(home: Path) -> dict[str, str]:
    way = edit_ways.ours(home, SUBJECTS["_multimodal"], "on")
    libraries = {}
    for number, name in enumerate((_FULL, _EDIT)):
        print(f"building {way.subject.leaf}: {name} ...", end="", flush=True)
        way.edit(number)
        took = way.run()
        print(f" {took.wall:.1f} s, {took.cpu:.1f} s of CPU", flush=True)
        if edit_ways.in_edit_tier(took.library) != (name == _EDIT):
            raise RuntimeError(f"{took.library} is not a build of the {name}")
        # The next build may remove the file.
        libraries[name] = str(shutil.copyfile(took.library, home / f"{number}.so"))
    return libraries


def _rows() -> list[Row]:
    """
    Return one row for each cell that our module computes.
    """
    rows = []
    for row in (*pixel_rows(1, oracles=False), *part_rows(oracles=False), *family_rows()):
        for column, cell in row.cells.items():
            if column.startswith("ours"):
                cells = {name: replace(cell, side=name) for name in (_FULL, _EDIT)}
                rows.append(Row(f"{row.label}, {column.removeprefix('ours, ')}", cells))
    return rows


def _texts(_row: Row, taken: Mapping[str, Taken], columns: Sequence[str]) -> list[str]:
    least = {name: min(taken[name].cpu) for name in columns}
    ratio = least[_EDIT] / least[_FULL]
    return [
        *(f"{value:.2f}" for value in least.values()),
        f"{ratio:.2f}x (at most {_MOST:g}x; {'kept' if ratio <= _MOST else 'MISSED'})",
    ]


_SHOW = Show("CPU ms of one call (user + system), minimum; then the ratio", lambda _rows: [_FULL, _EDIT], _texts)
