"""
No edit is missed, even during a decision: records are compared with a model that knows the true content.

The model is a disk with a clock. Its timestamps are as coarse as those of some file systems.
Edits happen between any two steps of a decision (begin, list, read, stat, record) and of
the check that follows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import amount

from rust_ext_loader import _record, _stat, _warm

from .racy_disk import (
    CONFIG,
    GRANULARITIES,
    HOUR,
    NEW,
    ON_A_FILE,
    PAUSES,
    SECOND,
    STEPS,
    A,
    Action,
    B,
    Disk,
    decide,
    grouped,
)

waits = st.tuples(st.just(Disk.wait), st.sampled_from(PAUSES))
edits = st.one_of(
    st.tuples(st.sampled_from(ON_A_FILE), st.sampled_from((A, B))),
    st.tuples(st.sampled_from((Disk.add, Disk.remove)), st.sampled_from((A, NEW, CONFIG))),
)
set_backs = st.tuples(st.just(Disk.set_back), st.sampled_from(PAUSES))


# Each script has few events, since a record is only written on a quiet disk. The clock is never set back after
# the record was written: then an edit could get the same stamp as an older one, which no check can detect.
happenings = st.builds(
    grouped,
    st.sampled_from(PAUSES),
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(STEPS), edits),
            st.tuples(st.sampled_from(("begin", "check")), waits),
            st.tuples(st.sampled_from(STEPS), waits),
            st.tuples(st.sampled_from(STEPS[:-1]), set_backs),
        ),
        max_size=5,
    ),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cache")
    root.chmod(0o700)
    (root / "records").mkdir()
    return root


@pytest.mark.sampled
@settings(max_examples=amount(sample=800, full=50_000), deadline=None)
@given(granularity=st.sampled_from(sorted(GRANULARITIES.values())), script=happenings)
def test_a_valid_record_implies_the_content_that_was_read(
    root: Path, granularity: int, script: dict[str, list[Action]]
) -> None:
    """
    If the record is valid, the content is the one that the decision read, for any events between the steps.
    """
    decision = decide(root, granularity, script)

    assert not decision.valid or decision.disk.truth() == decision.read_content


def test_a_file_missing_at_the_read_is_watched(root: Path) -> None:
    """
    A configuration file that is removed before it is read and restored afterwards invalidates the record.
    """
    for granularity in GRANULARITIES.values():
        script: dict[str, list[Action]] = {
            "begin": [(Disk.add, CONFIG), (Disk.wait, 5 * SECOND)],
            "read a": [(Disk.remove, CONFIG)],
            "stat folder": [(Disk.add, CONFIG)],
        }
        assert not decide(root, granularity, script).valid


QUIET: list[Action] = [(Disk.wait, 5 * SECOND)]


@pytest.mark.parametrize("granularity", GRANULARITIES.values(), ids=GRANULARITIES)
def test_a_quiet_disk_has_a_valid_record(root: Path, granularity: int) -> None:
    """
    Files that do not change for some seconds get a record that stays valid.

    The property above also holds if no record is ever written. This test fails then.
    """
    assert decide(root, granularity, {"begin": QUIET, "check": [(Disk.wait, 100 * HOUR)]}).valid


@pytest.mark.parametrize("granularity", GRANULARITIES.values(), ids=GRANULARITIES)
@pytest.mark.parametrize("act", ON_A_FILE, ids=lambda act: str(act.__name__))
@pytest.mark.parametrize("step", STEPS[1:])
def test_a_change_after_the_start_invalidates(
    root: Path, granularity: int, act: Callable[..., None], step: str
) -> None:
    """
    One change of one file of a quiet disk, at each step, leaves no valid record.
    """
    decision = decide(root, granularity, {"begin": QUIET, step: [(act, A)]})

    assert not decision.valid


def weaker(name: str, value: object) -> Callable[[], AbstractContextManager[object]]:
    return lambda: mock.patch.object(_stat, name, value)


def without(*positions: int) -> Callable[[], AbstractContextManager[object]]:
    """
    Omit parts of each signature.
    """
    whole = Disk.signature

    def partial(disk: Disk, path: str) -> object:
        seen = whole(disk, path)
        return (
            None if seen is None else tuple(0 if position in positions else part for position, part in enumerate(seen))
        )

    return lambda: mock.patch.object(Disk, "signature", partial)


SET_BACK: dict[str, list[Action]] = {"begin": QUIET, "stat folder": [(Disk.set_back, 4 * SECOND), (Disk.edit, A)]}
SAME_TICK: dict[str, list[Action]] = {"begin": [*QUIET, (Disk.edit, A)], "check": [(Disk.edit, A)]}


@pytest.mark.parametrize(
    ("weakened", "script"),
    [
        pytest.param(weaker("UNSETTLED_NS", 0), SAME_TICK, id="minimum age of stamps"),
        pytest.param(weaker("started_at", lambda began, _: began[0]), SET_BACK, id="clock set back"),
        pytest.param(without(0), {"begin": QUIET, "check": [(Disk.set_back, 5 * SECOND), (Disk.grow, A)]}, id="size"),
        pytest.param(without(1, 3), {"begin": QUIET, "check": [(Disk.add, NEW)]}, id="both times of a folder"),
        pytest.param(
            without(2), {"begin": QUIET, "check": [(Disk.set_back, 5 * SECOND), (Disk.swap_unstamped, A)]}, id="inode"
        ),
        pytest.param(without(3), {"begin": QUIET, "check": [(Disk.edit_and_put_time_back, A)]}, id="change time"),
    ],
)
def test_each_rule_is_needed(
    root: Path, weakened: Callable[[], AbstractContextManager[object]], script: dict[str, list[Action]]
) -> None:
    """
    Without one of the rules a record with outdated content is valid. With all of them no valid record is left.
    """
    with weakened():
        wrong = decide(root, 2 * SECOND, script)
    right = decide(root, 2 * SECOND, script)

    assert wrong.valid
    assert wrong.disk.truth() != wrong.read_content
    assert not right.valid


def test_real_files_with_the_real_clock(root: Path, tmp_path: Path) -> None:
    """
    A file written just now prevents a record. An older one allows a record, which an edit of equal size invalidates.
    """
    file = tmp_path / "lib.rs"

    def record() -> bytes | None:
        began = _stat.clocks()
        present = {str(path): seen for path in (tmp_path, file) if (seen := _stat.signature(str(path))) is not None}
        started = _stat.started_at(began, _stat.clocks())
        return _record.compose(
            ("real",), declared=(), present=present, absent=(), library="x", started_ns=started, boot=None
        )

    file.write_text("one")
    assert record() is None

    # The rule requires two seconds.
    time.sleep(2.1)
    data = record()
    assert data is not None
    place = Path(_warm.path_of(str(root), ("real",)))
    place.write_bytes(data)
    place.chmod(0o600)
    assert _warm.read(str(root), ("real",), {}) == "x"

    before = file.stat()
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert _warm.read(str(root), ("real",), {}) is None


@pytest.mark.parametrize(
    ("age", "changed", "settled"),
    [
        pytest.param(3 * SECOND, 3 * SECOND, True, id="old"),
        pytest.param(2 * SECOND + 1, 2 * SECOND + 1, True, id="just old enough"),
        pytest.param(2 * SECOND, 3 * SECOND, False, id="modified 2 s before"),
        pytest.param(3 * SECOND, 2 * SECOND, False, id="changed 2 s before, with an older mtime"),
        pytest.param(0, 0, False, id="at the same moment"),
        pytest.param(-3600 * SECOND, 3 * SECOND, False, id="modified in the future"),
        pytest.param(3 * SECOND, -3600 * SECOND, False, id="changed in the future"),
    ],
)
def test_unsettled_stamps_prevent_a_record(age: int, changed: int, settled: bool) -> None:
    """
    A stamp prevents a record while a later edit could get the same stamp.
    """
    started = 1_000_000 * SECOND
    data = _record.compose(
        ("m",),
        declared=[],
        present={
            "old": (1, 1, 1, 1),
            "file": (1, started - age, 2, started - changed),
            "entry": (1, started, 3, started),
        },
        absent=[],
        library="old",
        started_ns=started,
        boot=None,
        renamed={"entry"},
    )

    assert (data is not None) == settled


def test_a_real_file_is_unsettled_when_just_written(tmp_path: Path) -> None:
    """
    The clocks of the file system and of Python agree about "just now". An old mtime does not hide a recent change.
    """
    file = tmp_path / "file"
    file.write_text("new")
    os.utime(file, (1, 1))
    found = _stat.signature(str(file))
    assert found is not None

    def compose(started_ns: int) -> bytes | None:
        return _record.compose(
            ("m",), declared=[], present={"file": found}, absent=[], library="", started_ns=started_ns, boot=None
        )

    assert compose(time.time_ns()) is None
    assert compose(time.time_ns() + 3 * SECOND) is not None
