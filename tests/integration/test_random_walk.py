"""
Random changes of checkouts, cache and variables cause no stale load and no unexplained build.

A walk takes random steps (`walk_edits`, `walk_accidents`) and checks every load against a
model (`walk_tree`, `walking`). `RUST_EXT_WALK_SECONDS` sets its duration and
`RUST_EXT_WALK_SEED` its seed. A failed walk prints its seed and its steps.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import walk_accidents
import walk_edits
from long_runs import amount
from walk_tree import MODULES
from walking import Key, Walk

SECONDS = float(os.environ.get("RUST_EXT_WALK_SECONDS") or amount(sample=60, full=3600))
#: The default seed depends on the Python version only.
SEED = int(os.environ.get("RUST_EXT_WALK_SEED") or sys.version_info.minor)
#: Seconds between two progress lines of a long walk.
REPORT_INTERVAL = 60.0

#: The steps, with their weights.
STEPS: dict[Callable[[Walk], str], int] = {
    walk_edits.edit_a_source: 12,
    walk_edits.edit_several_sources: 4,
    walk_edits.edit_an_included_file: 8,
    walk_edits.add_or_delete_a_listed_file: 2,
    walk_edits.add_or_delete_a_module: 4,
    walk_edits.add_or_delete_a_file: 2,
    walk_edits.edit_a_manifest: 3,
    walk_edits.edit_the_configuration: 2,
    walk_edits.edit_an_unread_file: 3,
    walk_edits.comment_on_a_manifest: 2,
    walk_edits.touch: 2,
    walk_edits.set_an_idle_variable: 2,
    walk_edits.set_a_variable: 12,
    walk_edits.change_an_input_of_a_record: 10,
    walk_edits.save: 3,
    walk_edits.switch: 8,
    walk_edits.clone: 2,
    walk_edits.go_to_another_checkout: 3,
    walk_edits.rename_the_checkout: 1,
    walk_accidents.wipe: 3,
    walk_accidents.delete_an_entry: 2,
    walk_accidents.damage_an_entry: 4,
    walk_accidents.damage_records_or_build_state: 2,
    walk_accidents.load_in_another_mode: 4,
    walk_accidents.break_and_repair: 2,
    walk_accidents.load_together: 4,
    walk_accidents.edit_during_a_build: 4,
    walk_accidents.edit_and_revert_during_a_build: 4,
    walk_accidents.kill_a_compiling_builder: 4,
    walk_accidents.kill_a_builder: 6,
}


@pytest.mark.sampled
@pytest.mark.timeout(SECONDS + 300)
def test_a_random_walk_finds_no_stale_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """
    After each step new processes load modules. Their values match the sources, and nothing is built twice.
    """

    def say(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\nseed {SEED}, {text}")
            sys.stdout.flush()

    walk = Walk(tmp_path, random.Random(SEED))
    history: list[str] = []
    try:
        _go(walk, history, say)
    except BaseException as error:
        steps = "\n".join(history)
        raise AssertionError(f"seed {SEED}, {walk.counts}\n{steps}\n{error}") from error
    say(f"at the end: {walk.counts}\n")
    assert walk.counts.by_record or walk.counts.loads < 50, "no load was decided by a record"


def _go(walk: Walk, history: list[str], say: Callable[[str], None]) -> None:
    began = reported = time.monotonic()
    while time.monotonic() - began < SECONDS:
        walk.counts.steps += 1
        step = walk.random.choices(list(STEPS), list(STEPS.values()))[0]
        history.append(f"{walk.counts.steps}. {step.__name__}")
        before = {module: walk.key(module) for module in MODULES}
        history[-1] += f": {step(walk)}"
        for module in _worth_loading(walk, before):
            history[-1] += f" | {module}"
            walk.check(module)
        walk.here.assert_as_modelled()
        if time.monotonic() - reported > REPORT_INTERVAL:
            reported = time.monotonic()
            say(f"{reported - began:.0f} s: {walk.counts}")


def _worth_loading(walk: Walk, before: Mapping[str, Key]) -> list[str]:
    """
    Choose one or two modules to load, preferably modules whose facts changed.
    """
    changed = [module for module in sorted(MODULES) if walk.key(module) != before[module]]
    among = changed if changed and walk.random.random() < 0.8 else sorted(MODULES)
    return walk.random.sample(among, min(len(among), walk.random.choice((1, 1, 2))))


BREAKAGES = {
    "a record that is always valid": (
        "from rust_ext_loader import _warm; _warm.packed = lambda _: b''",
        "fx.lone answers 'lone-1' instead of",
    ),
    "a cache that finds no entry": (
        # Disable records too. Otherwise a record may decide the load: whether one exists depends on the age of files.
        (
            "from rust_ext_loader import _warm; from rust_ext_loader.cache import _store; "
            "_store.look_up = lambda *_: None; _warm.find = lambda *_: None"
        ),
        "fx.lone is cached, but cargo ran",
    ),
    "an invented reason": (
        "from rust_ext_loader import _sightings; _sightings.reason = lambda *_, **__: 'invented'",
        "reason in the output: .*invented",
    ),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_the_walk_detects_a_broken_toolkit(tmp_path: Path, breakage: str) -> None:
    """
    The walk detects a stale load, a needless build and a wrong reason at once.
    """
    text, complaint = BREAKAGES[breakage]
    walk = Walk(tmp_path, random.Random(0), breakage=text)

    with pytest.raises(AssertionError, match=complaint):
        _load_edit_and_load(walk)


def _load_edit_and_load(walk: Walk) -> None:
    for _ in range(2):
        walk.check("fx.lone")
        walk.check("fx.lone")
        walk_edits.edit_a_source(walk, ("lone",))
