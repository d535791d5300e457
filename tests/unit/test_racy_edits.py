"""
An edit is never missed, however close to the look at it: the record against a model that knows the truth.

The model is a disk with a clock: it stamps what is changed by that clock, as
coarsely as some file systems do, and it is edited between any two steps of a
decision (begin, list, read, stat, record) and of the check that follows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rust_ext_loader import _record
from rust_ext_loader.files import _stat

MILLISECOND = 1_000_000
SECOND = 1000 * MILLISECOND
HOUR = 3600 * SECOND

#: Stamps of FAT, of ext3 and HFS+, of kernels that read the clock once per tick, of none at all.
GRANULARITIES = {"2 s": 2 * SECOND, "1 s": SECOND, "10 ms": 10 * MILLISECOND, "1 ns": 1}

FOLDER, A, B, CONFIG, NEW = "src", "src/a", "src/b", "config", "src/new"


@dataclass(frozen=True)
class Node:
    """
    A file or folder: what a build would see of it, and what a stat tells.
    """

    content: int
    size: int
    inode: int
    mtime: int
    ctime: int


@dataclass
class Disk:
    """
    A watched folder with files, and a configuration file in a folder that nobody watches.
    """

    granularity: int
    #: What has truly passed, and what the wall clock makes of it.
    steady: int = 10 * HOUR
    behind: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    #: Contents and inodes so far: each new one is one more.
    made: int = 0

    def __post_init__(self) -> None:
        for path in (FOLDER, A, B):
            self.nodes[path] = self._fresh()

    def _stamp(self) -> int:
        wall = self.steady - self.behind
        return wall - wall % self.granularity

    def _number(self) -> int:
        self.made += 1
        return self.made

    def _fresh(self) -> Node:
        return Node(self._number(), 100, self._number(), self._stamp(), self._stamp())

    def _change(self, path: str, **fields: int) -> None:
        """
        Whatever is changed about a file, the moment of the change is kept; that cannot be asked away.
        """
        if path in self.nodes:
            self.nodes[path] = replace(self.nodes[path], **{"ctime": self._stamp(), **fields})

    def _entries_changed(self, path: str) -> None:
        if path.startswith(FOLDER + "/"):
            self._change(FOLDER, mtime=self._stamp())

    # What the loader sees.

    def signature(self, path: str) -> _stat.Signature | None:
        node = self.nodes.get(path)
        return None if node is None else (node.size, node.mtime, node.inode, node.ctime)

    def exists(self, path: str) -> bool:
        return path in self.nodes

    def clocks(self) -> tuple[int, int]:
        return self.steady - self.behind, self.steady

    def truth(self) -> dict[str, int]:
        return {path: node.content for path, node in self.nodes.items() if path != FOLDER}

    # What people and programs do.

    def wait(self, nanoseconds: int) -> None:
        self.steady += nanoseconds

    def set_back(self, nanoseconds: int) -> None:
        self.behind += nanoseconds

    def edit(self, path: str) -> None:
        """
        Other content, of the same length, in place.
        """
        self._change(path, content=self._number(), mtime=self._stamp())

    def grow(self, path: str) -> None:
        self._change(path, content=self._number(), mtime=self._stamp(), size=100 + self.made)

    def edit_and_put_time_back(self, path: str) -> None:
        if path in self.nodes:
            self._change(path, content=self._number(), mtime=self.nodes[path].mtime)

    def date_ahead(self, path: str) -> None:
        self._change(path, mtime=self._stamp() + HOUR)

    def swap(self, path: str) -> None:
        """
        Another file takes its place by a rename, with the same length and the same modification time.
        """
        if path in self.nodes:
            self._change(path, content=self._number(), inode=self._number())
            self._entries_changed(path)

    def swap_unstamped(self, path: str) -> None:
        """
        The same on a file system for which a rename changes the folder alone: every time of the file is an old one.
        """
        if path in self.nodes:
            self._change(path, content=self._number(), inode=self._number(), ctime=self.nodes[path].ctime)
            self._entries_changed(path)

    def make_again(self, path: str) -> None:
        """
        Removed and made anew, with the same inode, length and modification time.
        """
        if path in self.nodes:
            self._change(path, content=self._number())
            self._entries_changed(path)

    def remove(self, path: str) -> None:
        if self.nodes.pop(path, None) is not None:
            self._entries_changed(path)

    def add(self, path: str) -> None:
        if path not in self.nodes:
            self.nodes[path] = self._fresh()
            self._entries_changed(path)


Action = tuple[Callable[..., None], object]

#: As long as anything here is coarse, and a nanosecond to either side.
PAUSES = (0, 1, 10 * MILLISECOND, SECOND, 2 * SECOND - 1, 2 * SECOND, 2 * SECOND + 1, 5 * SECOND, HOUR)
ON_A_FILE = (
    Disk.edit, Disk.grow, Disk.edit_and_put_time_back, Disk.date_ahead, Disk.swap, Disk.swap_unstamped, Disk.make_again, Disk.remove,
)  # fmt: skip
waits = st.tuples(st.just(Disk.wait), st.sampled_from(PAUSES))
edits = st.one_of(
    st.tuples(st.sampled_from(ON_A_FILE), st.sampled_from((A, B))),
    st.tuples(st.sampled_from((Disk.add, Disk.remove)), st.sampled_from((A, NEW, CONFIG))),
)
set_backs = st.tuples(st.just(Disk.set_back), st.sampled_from(PAUSES))

#: A decision and its check, in order; things happen before each.
STEPS = ("begin", "list", "read a", "read b", "stat folder", "stat a", "stat b", "record", "check")


def grouped(age: int, happened: list[tuple[str, Action]]) -> dict[str, list[Action]]:
    script: dict[str, list[Action]] = {"begin": [(Disk.wait, age)]}
    for step, action in happened:
        script.setdefault(step, []).append(action)
    return script


# Few things happen in each, since a record is only made where little did. A clock that is set back after the record was
# made can come to the very tick of an older edit: nothing tells that apart.
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


@dataclass
class Decision:
    """
    The steps of a decision on a disk, each announced, and what was believed and recorded.
    """

    disk: Disk
    root: Path
    happen: Callable[[str], object]
    believed: dict[str, int] = field(default_factory=dict)
    recorded: bool = False
    stands: bool = False

    def make(self) -> Decision:
        self.happen("begin")
        began = self.disk.clocks()
        self.happen("list")
        listed = [path for path in (A, B, NEW) if self.disk.exists(path)]
        configured = self.disk.exists(CONFIG)
        for path in (A, B):
            self.happen(f"read {path[-1]}")
            self._read(path, listed)
        self._read(NEW, listed)
        self._read(CONFIG, [CONFIG] if configured else [])
        # As the loader does: whatever was asked about is watched, by one look after all were read.
        watched = [
            path for path in (NEW, CONFIG) if path in self.believed or (path == CONFIG and self.disk.exists(path))
        ]
        present = {}
        for path in (FOLDER, A, B):
            self.happen(f"stat {path.rpartition('/')[2] if path != FOLDER else 'folder'}")
            present[path] = self.disk.signature(path)
        present.update({path: self.disk.signature(path) for path in watched})
        self.happen("record")
        self._record(
            began, {path: seen for path, seen in present.items() if path in {FOLDER, *watched} or path in self.believed}
        )
        self.happen("check")
        self.stands = self._check()
        return self

    def _read(self, path: str, listed: Sequence[str]) -> None:
        if path in listed and path in self.disk.nodes:
            self.believed[path] = self.disk.nodes[path].content

    def _record(self, began: tuple[int, int], present: dict[str, _stat.Signature | None]) -> None:
        found = {path: seen for path, seen in present.items() if seen is not None}
        if len(found) != len(present):
            return
        data = _record.compose(
            ("m",),
            declared=(),
            present=found,
            absent=() if CONFIG in present else (CONFIG,),
            library="library",
            started_ns=_stat.started_at(began, self.disk.clocks()),
            boot=None,
        )
        if data is not None:
            self.recorded = True
            self._file().write_bytes(data)
            self._file().chmod(0o600)

    def _file(self) -> Path:
        return Path(_record.path_of(str(self.root), ("m",)))

    def _check(self) -> bool:
        with (
            mock.patch.object(_stat, "signature", self.disk.signature),
            mock.patch("os.path.lexists", self.disk.exists),
        ):
            return self.recorded and _record.read(str(self.root), ("m",), {}) is not None


def decide(root: Path, granularity: int, script: dict[str, list[Action]]) -> Decision:
    disk = Disk(granularity)

    def happen(step: str) -> None:
        for act, argument in script.get(step, ()):
            act(disk, argument)

    return Decision(disk, root, happen).make()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cache")
    root.chmod(0o700)
    (root / "records").mkdir()
    return root


@settings(max_examples=800, deadline=None)
@given(granularity=st.sampled_from(sorted(GRANULARITIES.values())), script=happenings)
def test_what_stands_is_what_was_seen(root: Path, granularity: int, script: dict[str, list[Action]]) -> None:
    """
    Whatever happens between any two steps: if the record says that all stands, the content is what the decision read.
    """
    decision = decide(root, granularity, script)

    assert not decision.stands or decision.disk.truth() == decision.believed


def test_what_is_away_when_it_is_read_is_watched(root: Path) -> None:
    """
    A configuration file that is there, is gone when it is read, and is back: on a disk of fine stamps as on a coarse one.
    """
    for granularity in GRANULARITIES.values():
        script: dict[str, list[Action]] = {
            "begin": [(Disk.add, CONFIG), (Disk.wait, 5 * SECOND)],
            "read a": [(Disk.remove, CONFIG)],
            "stat folder": [(Disk.add, CONFIG)],
        }
        assert not decide(root, granularity, script).stands


QUIET: list[Action] = [(Disk.wait, 5 * SECOND)]


@pytest.mark.parametrize("granularity", GRANULARITIES.values(), ids=GRANULARITIES)
def test_a_quiet_disk_is_trusted(root: Path, granularity: int) -> None:
    """
    What was left alone for a few seconds is recorded and stands, days later too: the law above is not kept by never answering.
    """
    assert decide(root, granularity, {"begin": QUIET, "check": [(Disk.wait, 100 * HOUR)]}).stands


@pytest.mark.parametrize("granularity", GRANULARITIES.values(), ids=GRANULARITIES)
@pytest.mark.parametrize("act", ON_A_FILE, ids=lambda act: str(act.__name__))
@pytest.mark.parametrize("step", STEPS[1:])
def test_any_change_after_the_beginning_ends_it(
    root: Path, granularity: int, act: Callable[..., None], step: str
) -> None:
    """
    One thing happens to one file of a quiet disk, at each moment: nobody is told that nothing did.
    """
    decision = decide(root, granularity, {"begin": QUIET, step: [(act, A)]})

    assert not decision.stands


def weaker(name: str, value: object) -> Callable[[], AbstractContextManager[object]]:
    return lambda: mock.patch.object(_stat, name, value)


def without(*positions: int) -> Callable[[], AbstractContextManager[object]]:
    """
    A record that leaves parts of each signature out.
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
        pytest.param(weaker("UNSETTLED_NS", 0), SAME_TICK, id="the age that stamps must have"),
        pytest.param(weaker("started_at", lambda began, _: began[0]), SET_BACK, id="the clock that was set back"),
        pytest.param(without(0), {"begin": QUIET, "check": [(Disk.set_back, 5 * SECOND), (Disk.grow, A)]}, id="size"),
        pytest.param(without(1, 3), {"begin": QUIET, "check": [(Disk.add, NEW)]}, id="both times, of a folder"),
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
    Without the rule the model catches the record in a lie; with it, not.
    """
    with weakened():
        wrong = decide(root, 2 * SECOND, script)
    right = decide(root, 2 * SECOND, script)

    assert wrong.stands
    assert wrong.disk.truth() != wrong.believed
    assert not right.stands


def test_real_files_and_the_real_clock(root: Path, tmp_path: Path) -> None:
    """
    Written just now: no record. Left alone for a while: one that stands, until the same length is written with the old time.
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

    # Two seconds are the rule itself, not patience.
    time.sleep(2.1)
    data = record()
    assert data is not None
    place = Path(_record.path_of(str(root), ("real",)))
    place.write_bytes(data)
    place.chmod(0o600)
    assert _record.read(str(root), ("real",), {}) == "x"

    before = file.stat()
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert _record.read(str(root), ("real",), {}) is None
