"""
A model of a disk with coarse timestamps, and of a decision of the loader that reads it step by step.

The model's timestamps are as coarse as those of some file systems. Edits can happen before each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

from rust_ext_loader import _record, _stat, _warm

MILLISECOND = 1_000_000
SECOND = 1000 * MILLISECOND
HOUR = 3600 * SECOND

#: Granularity of timestamps on FAT, on ext3 and HFS+, in kernels that read the clock once per tick, and exact ones.
GRANULARITIES = {"2 s": 2 * SECOND, "1 s": SECOND, "10 ms": 10 * MILLISECOND, "1 ns": 1}

FOLDER, A, B, CONFIG, NEW = "src", "src/a", "src/b", "config", "src/new"


@dataclass(frozen=True)
class Node:
    """
    A file or folder: its content, and the fields that a stat returns.
    """

    content: int
    size: int
    inode: int
    mtime: int
    ctime: int


@dataclass
class Disk:
    """
    A watched folder with files, and a configuration file in a folder that is not watched.
    """

    granularity: int
    #: The true time, and by how much the wall clock is behind it.
    steady: int = 10 * HOUR
    behind: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    #: Counter for contents and inodes: each new one gets the next number.
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
        Change a file. Its change time is always updated, since programs cannot set it.
        """
        if path in self.nodes:
            self.nodes[path] = replace(self.nodes[path], **{"ctime": self._stamp(), **fields})

    def _entries_changed(self, path: str) -> None:
        if path.startswith(FOLDER + "/"):
            self._change(FOLDER, mtime=self._stamp())

    # Methods that the loader calls.

    def signature(self, path: str) -> _warm.Signature | None:
        node = self.nodes.get(path)
        return None if node is None else (node.size, node.mtime, node.inode, node.ctime)

    def exists(self, path: str) -> bool:
        return path in self.nodes

    def clocks(self) -> tuple[int, int]:
        return self.steady - self.behind, self.steady

    def truth(self) -> dict[str, int]:
        return {path: node.content for path, node in self.nodes.items() if path != FOLDER}

    # Actions of users and programs.

    def wait(self, nanoseconds: int) -> None:
        self.steady += nanoseconds

    def set_back(self, nanoseconds: int) -> None:
        self.behind += nanoseconds

    def edit(self, path: str) -> None:
        """
        Replace the content in place by another of the same length.
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
        Replace the file by a rename of another one with the same length and the same modification time.
        """
        if path in self.nodes:
            self._change(path, content=self._number(), inode=self._number())
            self._entries_changed(path)

    def swap_unstamped(self, path: str) -> None:
        """
        Like `swap`, on a file system where a rename updates only the folder's times: all times of the file are old.
        """
        if path in self.nodes:
            self._change(path, content=self._number(), inode=self._number(), ctime=self.nodes[path].ctime)
            self._entries_changed(path)

    def make_again(self, path: str) -> None:
        """
        Remove and recreate the file with the same inode, length and modification time.
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

#: Pauses around the granularities and around the age of two seconds that a record requires.
PAUSES = (0, 1, 10 * MILLISECOND, SECOND, 2 * SECOND - 1, 2 * SECOND, 2 * SECOND + 1, 5 * SECOND, HOUR)
ON_A_FILE = (
    Disk.edit,
    Disk.grow,
    Disk.edit_and_put_time_back,
    Disk.date_ahead,
    Disk.swap,
    Disk.swap_unstamped,
    Disk.make_again,
    Disk.remove,
)

#: The steps of a decision and its check, in order. Events happen before each.
STEPS = ("begin", "list", "read a", "read b", "stat folder", "stat a", "stat b", "record", "check")


def grouped(age: int, events: list[tuple[str, Action]]) -> dict[str, list[Action]]:
    script: dict[str, list[Action]] = {"begin": [(Disk.wait, age)]}
    for step, action in events:
        script.setdefault(step, []).append(action)
    return script


@dataclass
class Decision:
    """
    A decision on a disk: it announces each step, and holds what it read and recorded.
    """

    disk: Disk
    root: Path
    happen: Callable[[str], object]
    read_content: dict[str, int] = field(default_factory=dict)
    recorded: bool = False
    valid: bool = False

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
        # Like the loader: every path that was checked is watched, with a stat after all reads.
        watched = [
            path for path in (NEW, CONFIG) if path in self.read_content or (path == CONFIG and self.disk.exists(path))
        ]
        present = {}
        for path in (FOLDER, A, B):
            self.happen(f"stat {path.rpartition('/')[2] if path != FOLDER else 'folder'}")
            present[path] = self.disk.signature(path)
        present.update({path: self.disk.signature(path) for path in watched})
        self.happen("record")
        self._record(
            began,
            {path: seen for path, seen in present.items() if path in {FOLDER, *watched} or path in self.read_content},
        )
        self.happen("check")
        self.valid = self._check()
        return self

    def _read(self, path: str, listed: Sequence[str]) -> None:
        if path in listed and path in self.disk.nodes:
            self.read_content[path] = self.disk.nodes[path].content

    def _record(self, began: tuple[int, int], present: dict[str, _warm.Signature | None]) -> None:
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
        return Path(_warm.path_of(str(self.root), ("m",)))

    def _signatures(self, paths: Sequence[str]) -> list[_warm.Signature]:
        found = list(map(self.disk.signature, paths))
        if None in found:
            raise FileNotFoundError(paths)
        return [signature for signature in found if signature is not None]

    def _check(self) -> bool:
        with (
            mock.patch.object(_warm, "signatures", self._signatures),
            mock.patch("os.path.lexists", self.disk.exists),
        ):
            return self.recorded and _warm.read(str(self.root), ("m",), {}) is not None


def decide(root: Path, granularity: int, script: dict[str, list[Action]]) -> Decision:
    disk = Disk(granularity)

    def happen(step: str) -> None:
        for act, argument in script.get(step, ()):
            act(disk, argument)

    return Decision(disk, root, happen).make()
