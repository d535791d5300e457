"""
Clocks that are wrong, or that change during a build: content decides, so the loaded code is right.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from checkout import Checkout

from rust_ext_loader.files import _staging

ALPHA = "alpha-1 part-1 middle-1"
EDITED = "alpha-1 part-2 middle-1"

DAY = 86400.0


def shifted(seconds: float) -> str:
    """
    Code that shifts the wall clock of a load. Monotonic clocks are not changed.
    """
    return f"""
import time
time_ns, began = time.time_ns, time.monotonic()
time.time_ns = lambda: time_ns() + {int(seconds * 1e9)}
time.time = lambda: time.time_ns() / 1e9
"""


def stamp(folder: Path, seconds: float) -> None:
    """
    Shift the timestamps of all files in a folder.
    """
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            then = path.stat().st_mtime + seconds
            os.utime(path, (then, then))


@pytest.mark.parametrize("seconds", [DAY, -DAY, -50 * 365 * DAY], ids=["a day ahead", "a day behind", "long ago"])
def test_a_clock_that_was_corrected(plain: Checkout, seconds: float) -> None:
    """
    Timestamps of a wrong clock neither hide edits nor cause builds once the clock was corrected.
    """
    wrong = plain.load(prelude=shifted(seconds))
    stamp(plain.root, seconds)
    stamp(plain.cache, seconds)

    hit = plain.load()
    plain.replace("alpha/src/part.rs", "part-1", "part-2")
    edited, after = plain.load(), plain.load()
    forced = plain.load(mode="force")

    assert [wrong.value, hit.value, edited.value, after.value, forced.value] == [ALPHA, ALPHA, EDITED, EDITED, EDITED]
    assert [hit.compiled, edited.compiled, after.compiled, forced.compiled] == [[], ["alpha"], [], ["alpha"]]


def test_force_ignores_builds_from_the_future(plain: Checkout) -> None:
    """
    A forced build does not accept an earlier build whose start is in the future because the clock was wrong.
    """
    first = plain.load(prelude=shifted(DAY))
    forced, later = plain.load(mode="force"), plain.load()

    assert [first.value, forced.value, later.value] == [ALPHA] * 3
    assert forced.compiled == ["alpha"]
    assert (forced.file, ()) == (later.file, later.cargo)


def test_a_clock_that_is_set_back_during_a_build(plain: Checkout) -> None:
    """
    If the clock is set back an hour during a build, the right module is stored, with a positive build duration.
    """
    setting = f"""
from rust_ext_loader.build import _cargo
run = _cargo.run
def run_and_set_back(*arguments, **named):
    result = run(*arguments, **named)
    exec({shifted(-3600)!r}, {{}})
    return result
_cargo.run = run_and_set_back
"""
    built, after = plain.load(prelude=setting), plain.load()

    assert [built.value, after.value] == [ALPHA, ALPHA]
    assert (built.warnings, after.cargo) == ((), ())
    assert json.loads((Path(str(built.file)).parent / "manifest.json").read_bytes())["seconds"] > 0
    plain.replace("alpha/src/part.rs", "part-1", "part-2")
    assert plain.load().value == EDITED


def test_a_fast_clock_does_not_remove_staging_folders(plain: Checkout) -> None:
    """
    A process whose clock is days ahead does not remove a staging folder that another process may be writing.
    """
    plain.load()
    young = plain.cache / "staging" / _staging.unique_name()
    young.mkdir()
    plain.replace("alpha/src/part.rs", "part-1", "part-2")

    ahead = plain.load(prelude=shifted(3 * DAY))

    assert (ahead.value, ahead.compiled) == (EDITED, ["alpha"])
    assert young.exists()
