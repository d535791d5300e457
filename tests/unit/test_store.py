"""
Cache entries on disk: a valid entry is found, and any other is a miss.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from children import expect_line, killed_at_exit
from eventually import eventually

from rust_ext_loader.cache import _checkouts, _roots, _store
from rust_ext_loader.facts._fingerprint import SHORT, Fingerprint
from rust_ext_loader.files import _digest
from rust_ext_loader.library._library_file import host_glibc

from .stored_entries import BYTES, FACTS, MODULE, can_change_owner, look_up, origin, publish

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "cache"
    assert _roots.ready(root) is None
    return root


def test_a_secret_variable_binds_an_entry_to_its_host(root: Path) -> None:
    """
    A secret variable binds the entry, whether it is declared or a build was seen to read it.
    """
    seen = {"seen/env/X": "keyed:00:00", "seen/env/Y": "unset"}
    made = dataclasses.replace(origin(), seen=seen)
    entry = publish(root, {**FACTS, "flags/env/FLAVOUR": "sha256:00", "flags/env/CC": "cc"}, made=made)

    manifest = json.loads((entry.folder / "manifest.json").read_bytes())
    assert (entry.seen, manifest["host_bound"]) == (seen, ["flags/env/FLAVOUR", "seen/env/X"])


def test_a_published_entry_is_found(root: Path) -> None:
    """
    A look-up returns the entry with its bytes, facts, keys and origin.
    """
    published = publish(root, made=origin(began=123.5, token="t"))
    found = look_up(root)

    assert found == published
    assert found.library.read_bytes() == BYTES
    assert found.facts == FACTS
    assert (found.source_key, found.build_key) == (Fingerprint(FACTS).source_key, Fingerprint(FACTS).build_key)
    assert (found.began, found.token) == (123.5, "t")


def test_the_layout_of_an_entry(root: Path) -> None:
    """
    The folders are module, source key, build key and generation. Other versions read this layout too.
    """
    entry = publish(root)
    fingerprint = Fingerprint(FACTS)
    slot = root / "artifacts" / MODULE / fingerprint.source_key[:SHORT] / fingerprint.build_key[:SHORT]

    assert entry.folder.parent == slot
    assert sorted(path.name for path in slot.iterdir()) == sorted([entry.folder.name, "current"])
    assert (slot / "current").read_text() == entry.folder.name
    assert sorted(path.name for path in entry.folder.iterdir()) == ["alpha.so", "manifest.json", "used"]


def test_a_new_build_has_a_new_file(root: Path) -> None:
    """
    Publishing again replaces the pointer. The old library is not written, since a process may have mapped it.
    """
    old = publish(root)
    inode = old.library.stat().st_ino
    new = publish(root, content=b"rebuilt")

    assert look_up(root) == new
    assert old.library.read_bytes() == BYTES
    assert old.library.stat().st_ino == inode != new.library.stat().st_ino


def test_the_cache_is_private_to_its_owner(root: Path) -> None:
    """
    Other users cannot enter or write the root or anything below it.
    """
    publish(root)

    assert [path for path in (root, *root.rglob("*")) if path.lstat().st_mode & 0o077] == []


def test_an_entry_for_another_host_or_format_is_kept(root: Path) -> None:
    """
    A valid entry that this process cannot use may be used by another host or version.
    """
    entries = [publish(root, made=origin(floor=(99, 0))), publish(root, {**FACTS, "abi/tag": "other"})]
    manifest = entries[1].folder / "manifest.json"
    manifest.write_text(json.dumps({"format": _store.FORMAT + 1}))
    if host_glibc() is not None:
        assert look_up(root) is None
    assert look_up(root, facts=entries[1].facts) is None

    assert all(entry.folder.is_dir() for entry in entries)
    assert _store.damaged([root], MODULE, Fingerprint(FACTS)) is None


def test_the_library_of_a_rejected_entry_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An entry rejected by its facts or by the caller costs reading a manifest, not a digest of the library.
    """
    entry = publish(root)
    digests = list[Path]()
    real = _digest.of_file

    def recording_digest(path: str | os.PathLike[str]) -> str:
        digests.append(Path(path))
        return real(path)

    monkeypatch.setattr(_digest, "of_file", recording_digest)

    assert _store.look_up([root], MODULE, Fingerprint(FACTS), lambda entry: entry.token == "t") is None
    assert _store.look_up_ignoring([root], MODULE, Fingerprint({**FACTS, "abi/tag": "other"}), "toolchain") is None
    assert digests == []
    assert _store.look_up([root], MODULE, Fingerprint(FACTS), lambda entry: entry.token is None) == entry
    assert digests == [entry.library]


def test_a_build_replaces_a_damaged_entry(root: Path) -> None:
    """
    A damaged entry does not prevent publishing a valid one.
    """
    publish(root).library.write_bytes(b"")
    entry = publish(root)

    assert look_up(root) == entry


@pytest.mark.parametrize(
    ("floor", "hit"),
    [
        pytest.param(None, True, id="unknown"),
        pytest.param((2, 2), True, id="older than here"),
        pytest.param((99, 0), False, id="newer than here"),
    ],
)
@pytest.mark.skipif(host_glibc() is None, reason="this C library is not glibc")
def test_a_library_for_a_newer_glibc_is_a_miss(root: Path, floor: tuple[int, int] | None, hit: bool) -> None:
    """
    An entry that needs a newer glibc than this host has is not used.
    """
    publish(root, made=origin(floor=floor))

    assert (look_up(root) is not None) == hit


@pytest.mark.parametrize("name", FACTS)
def test_one_different_fact_is_a_miss(root: Path, name: str) -> None:
    """
    An entry with one different fact is not used.
    """
    publish(root)

    assert look_up(root, facts={**FACTS, name: "other"}) is None


def test_a_copied_entry_does_not_serve_another_key(root: Path) -> None:
    """
    A slot copied to the path of another key does not serve that key.
    """
    entry = publish(root)
    wanted = {**FACTS, "toolchain/release": "1.96.0"}
    place = entry.folder.parents[1] / Fingerprint(wanted).build_key[:SHORT]
    shutil.copytree(entry.folder.parent, place)

    assert look_up(root, facts=wanted) is None


def test_folder_names_may_collide(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Folder names contain shortened keys. The complete facts are compared, so another build in the folder is a miss.
    """
    monkeypatch.setattr(_store, "SHORT", 1)
    place = publish(root).folder.parent
    many = ({**FACTS, "source/src/lib.rs": str(number)} for number in itertools.count())
    other = next(facts for facts in many if slot_of(root, Fingerprint(facts)) == place)

    assert look_up(root) is not None
    assert look_up(root, facts=other) is None


def slot_of(root: Path, fingerprint: Fingerprint) -> Path:
    return root / "artifacts" / MODULE / fingerprint.source_key[:1] / fingerprint.build_key[:1]


def test_roots_are_searched_in_order(tmp_path: Path, root: Path) -> None:
    """
    The first root with a valid entry serves it. A damaged entry in an earlier root does not hide it.
    """
    second = tmp_path / "second"
    assert _roots.ready(second) is None
    there = publish(second)
    assert look_up(root, second) == there

    here = publish(root)
    assert look_up(root, second) == here

    here.library.write_bytes(b"")
    assert look_up(root, second) == there


def test_look_up_ignoring_finds_the_newest_entry(root: Path) -> None:
    """
    `look_up_ignoring` ignores one group, compares all others, and prefers the build that began last.
    """
    old = publish(root, {**FACTS, "toolchain/release": "1.94.0"}, made=origin(began=2.0))
    older = publish(root, {**FACTS, "toolchain/release": "1.93.0"}, made=origin(began=1.0))
    publish(root, {**FACTS, "toolchain/release": "1.96.0", "abi/tag": "cp312"}, made=origin(began=3.0))
    without = Fingerprint(Fingerprint(FACTS).without("toolchain"))

    assert _store.look_up_ignoring([root], MODULE, without, "toolchain") == old
    old.library.unlink()
    assert _store.look_up_ignoring([root], MODULE, without, "toolchain") == older


def test_a_quarantined_library_is_kept(root: Path) -> None:
    """
    A quarantined entry is not found, and its bytes are kept for inspection.
    """
    entry = publish(root)
    _store.quarantine_library(root, entry.library)

    assert look_up(root) is None
    assert [path.read_bytes() for path in (root / "quarantine").rglob("alpha.so")] == [BYTES]


def test_the_facts_of_a_checkout_are_remembered(root: Path, tmp_path: Path) -> None:
    """
    The facts that a checkout used last are stored per checkout and module. A damaged note is ignored.
    """
    _checkouts.remember(root, tmp_path / "one", MODULE, FACTS)

    assert _checkouts.recall(root, tmp_path / "one", MODULE) == FACTS
    assert _checkouts.recall(root, tmp_path / "two", MODULE) is None
    assert _checkouts.recall(root, tmp_path / "one", "fx.beta") is None
    for note in (root / "checkouts").rglob("*.json"):
        note.write_text("{")
    assert _checkouts.recall(root, tmp_path / "one", MODULE) is None


def test_a_root_has_a_cachedir_tag(root: Path) -> None:
    """
    Backup tools recognise a cache by this tag.
    """
    assert (root / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")


def make_writable(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def make_for_another_user(path: Path) -> None:
    path.mkdir()
    if not can_change_owner(path.parent):
        pytest.skip("only root may change the owner of files")
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        pytest.param(lambda path: path.write_text(""), "is not a folder", id="a file"),
        pytest.param(lambda path: path.symlink_to(path.parent), "is a symbolic link", id="a link"),
        pytest.param(make_writable, "is writable by others (mode 0777)", id="open to all"),
        pytest.param(make_for_another_user, "belongs to user 12345", id="of another user"),
    ],
)
def test_an_unusable_root_has_a_reason(tmp_path: Path, prepare: Callable[[Path], object], reason: str) -> None:
    """
    The reason names the path and the problem.
    """
    path = tmp_path / "cache"
    prepare(path)
    problem = _roots.ready(path)

    assert problem is not None
    assert str(path) in problem
    assert reason in problem


_PUBLISHER = """
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from rust_ext_loader.cache import _store
from rust_ext_loader.facts._fingerprint import Fingerprint
root, facts, number = Path(sys.argv[1]), eval(sys.argv[2]), int(sys.argv[3])
artifact = root.parent / f"lib{number}.so"
artifact.write_bytes(bytes([number]) * 300_000)
origin = _store.Origin("1.95.0", "cp311", None, float(number), 1.0, None)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(5):
    _store.publish(root, "fx.alpha", Fingerprint(facts), artifact, "alpha.so", origin)
"""


def test_eight_publishers_leave_one_complete_entry(tmp_path: Path) -> None:
    """
    Eight publishers that start together on a missing root all succeed and leave one entry and no staging folder.

    A concurrent look-up finds nothing at first, then always a complete entry.
    """
    root = tmp_path / "cache"
    publishers = [
        subprocess.Popen(
            [sys.executable, "-c", _PUBLISHER, str(root), repr(FACTS), str(number)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    seen: list[bool] = []

    def all_published() -> bool:
        seen.append(look_up(root) is not None)
        return all(publisher.poll() is not None for publisher in publishers)

    with killed_at_exit(*publishers):
        for publisher in publishers:
            expect_line(publisher, "ready")
        for publisher in publishers:
            assert publisher.stdin is not None
            publisher.stdin.write("go\n")
            publisher.stdin.flush()
        eventually(all_published, "eight publishers have ended", pause=0)

    assert seen == sorted(seen), "a published entry disappeared"
    entry = look_up(root)
    assert [publisher.returncode for publisher in publishers] == [0] * 8
    assert entry is not None
    assert len(set(entry.library.read_bytes())) == 1
    assert entry.library.stat().st_size == 300_000
    assert list((root / "staging").iterdir()) == []
    assert list(root.rglob(".*")) == []
    assert len(list((root / "artifacts").rglob("current"))) == 1


def test_altered_seen_inputs_are_damage(root: Path) -> None:
    """
    Only the digest in the folder's name covers the seen inputs; no key does.
    """
    entry = publish(root, made=dataclasses.replace(origin(), seen={"seen/file/a": "1"}))
    path = entry.folder / "manifest.json"
    assert look_up(root) == entry
    path.write_text(path.read_text().replace("seen/file/a", "seen/file/b"))

    assert look_up(root) is None
    assert not entry.folder.exists()
