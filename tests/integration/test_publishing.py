"""
Publishing entries under kills and races, without a compiler: a published name is absent or complete.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rust_ext_loader import _trust
from rust_ext_loader.cache import _roots, _store
from rust_ext_loader.facts._fingerprint import Fingerprint
from rust_ext_loader.files import _staging

if TYPE_CHECKING:
    from collections.abc import Callable

FACTS = Fingerprint({"request/package": "alpha", "source/alpha": "1", "toolchain/rustc": "1.95.0"})
ORIGIN = _store.Origin("1.95.0", "cp311", None, 1.0, 1.0, None)


def store(root: Path, artifact: Path) -> _store.Entry:
    """
    Publish one library as the build of `FACTS`.
    """
    return _store.publish(root, "fx.alpha", FACTS, artifact, "alpha.so", ORIGIN)


def killed_at_step(count: int, work: Callable[[], object]) -> int:
    """
    Run `work` in a forked child that kills itself before disk operation `count + 1`. Return the child's status.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    steps = 0

    def step(name: str) -> None:
        """
        Count one operation, or kill the process before it.
        """
        nonlocal steps
        if name in ("open", "os.mkdir", "os.rename", "os.chmod", "os.remove", "os.rmdir", "write", "fsync"):
            steps += 1
            if steps > count:
                os.kill(os.getpid(), signal.SIGKILL)

    write, fsync = os.write, os.fsync

    def write_as_step(descriptor: int, data: bytes) -> int:
        step("write")
        return write(descriptor, data)

    def fsync_as_step(descriptor: int) -> None:
        step("fsync")
        fsync(descriptor)

    try:
        sys.addaudithook(lambda name, _: step(name))
        os.write = write_as_step  # type: ignore[assignment]  # takes what is written here
        os.fsync = fsync_as_step  # type: ignore[assignment]  # likewise
        work()
    finally:
        os._exit(0)


def test_a_kill_at_any_step_leaves_a_complete_entry_or_none(tmp_path: Path) -> None:
    """
    A publisher killed before any disk operation leaves a complete entry or none, and the next publisher succeeds.
    """
    artifact = tmp_path / "built.so"
    artifact.write_bytes(os.urandom(100_000))
    found = []
    for count in range(1000):
        root = tmp_path / str(count)
        status = killed_at_step(count, lambda root=root: store(root, artifact))  # type: ignore[misc]
        entry = _store.look_up([root], "fx.alpha", FACTS)
        found.append(entry is not None)
        assert entry is None or entry.library.read_bytes() == artifact.read_bytes()

        store(root, artifact)
        again = _store.look_up([root], "fx.alpha", FACTS)
        assert again is not None
        assert again.library.read_bytes() == artifact.read_bytes()
        if status == 0:
            break

    # The entry is absent up to some step and present after it.
    assert found == sorted(found)
    assert found.count(False) > 8
    assert found[-1]


def test_files_of_killed_publishers_are_removed(tmp_path: Path) -> None:
    """
    Staging folders of killed publishers are removed after a day. Younger ones may still be in use.
    """
    artifact = tmp_path / "built.so"
    artifact.write_bytes(b"bytes")
    young, old = (tmp_path / "cache/staging" / _staging.unique_name() for _ in range(2))
    for folder in (young, old):
        folder.mkdir(parents=True)
        (folder / "half").write_bytes(b"half")
    then = time.time() - 2 * 86400
    os.utime(old, (then, then))

    store(tmp_path / "cache", artifact)

    assert [young] == list((tmp_path / "cache/staging").iterdir())


def test_racing_publishers_leave_one_complete_entry(tmp_path: Path) -> None:
    """
    Processes that publish one key in parallel all succeed. Readers see a complete entry or none.
    """
    artifact = tmp_path / "built.so"
    artifact.write_bytes(os.urandom(100_000))
    root = tmp_path / "cache"

    def publish() -> None:
        for _ in range(20):
            store(root, artifact)
            entry = _store.look_up([root], "fx.alpha", FACTS)
            assert entry is not None
            assert entry.library.read_bytes() == artifact.read_bytes()

    assert in_children(8, publish) == [0] * 8
    assert list((root / "staging").iterdir()) == []


def test_fifty_processes_make_one_root(tmp_path: Path) -> None:
    """
    Fifty processes that create one missing root in parallel all succeed.
    """
    root = tmp_path / "deep" / "er" / "cache"

    def prepare() -> None:
        assert _roots.ready(root) is None
        assert _trust.problem(root) is None

    assert in_children(50, prepare) == [0] * 50
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def in_children(count: int, work: Callable[[], None]) -> list[int]:
    """
    Run `work` in `count` forked children that start together. Return their statuses.
    """
    reader, writer = os.pipe()
    children = []
    for _ in range(count):
        child = os.fork()
        if not child:
            status = 1
            try:
                os.close(writer)
                os.read(reader, 1)
                work()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    os.close(reader)
    os.close(writer)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_every_publication_has_a_new_inode(tmp_path: Path) -> None:
    """
    A published file is never written again, since a process may have mapped it.
    """
    artifact = tmp_path / "built.so"
    artifact.write_bytes(b"first")
    one = store(tmp_path / "cache", artifact)
    artifact.write_bytes(b"second")
    other = store(tmp_path / "cache", artifact)

    assert one.library.stat().st_ino != other.library.stat().st_ino
    assert [one.library.read_bytes(), other.library.read_bytes()] == [b"first", b"second"]
    current = _store.look_up([tmp_path / "cache"], "fx.alpha", FACTS)
    assert current is not None
    assert current.library == other.library
