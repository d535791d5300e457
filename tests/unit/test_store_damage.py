"""
Damaged or untrusted cache entries: each is a miss and never an error.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader.cache import _roots, _store
from rust_ext_loader.facts._fingerprint import Fingerprint

from .stored_entries import BYTES, FACTS, MODULE, can_change_owner, look_up, publish

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "cache"
    assert _roots.ready(root) is None
    return root


def edit_manifest(**fields: object) -> Callable[[_store.Entry], None]:
    def act(entry: _store.Entry) -> None:
        path = entry.folder / "manifest.json"
        manifest = {**json.loads(path.read_bytes()), **fields}
        path.write_text(json.dumps({name: value for name, value in manifest.items() if value != "(gone)"}))

    return act


def write(name: str, content: bytes) -> Callable[[_store.Entry], None]:
    return lambda entry: void((entry.folder / name).write_bytes(content))


def void(_: object) -> None:
    return None


def zero_the_middle(entry: _store.Entry) -> None:
    with entry.library.open("r+b") as file:
        file.seek(4096)
        file.write(b"\0" * 4096)


def become_a_folder(entry: _store.Entry) -> None:
    entry.library.unlink()
    entry.library.mkdir(mode=0o700)


def become_a_link(choose: Callable[[_store.Entry], Path]) -> Callable[[_store.Entry], None]:
    def act(entry: _store.Entry) -> None:
        path = choose(entry)
        moved = path.with_name("elsewhere")
        path.rename(moved)
        path.symlink_to(moved)

    return act


def mode(bits: int, choose: Callable[[_store.Entry], Path]) -> Callable[[_store.Entry], None]:
    return lambda entry: choose(entry).chmod(bits)


def give_away(choose: Callable[[_store.Entry], Path]) -> Callable[[_store.Entry], None]:
    def act(entry: _store.Entry) -> None:
        if not can_change_owner(entry.folder.parents[5]):
            pytest.skip("only root may change the owner of files")
        os.chown(choose(entry), 12345, 12345)

    return act


def point_at(generation: bytes) -> Callable[[_store.Entry], None]:
    return lambda entry: void((entry.folder.parent / "current").write_bytes(generation))


def library(entry: _store.Entry) -> Path:
    return entry.library


def manifest(entry: _store.Entry) -> Path:
    return entry.folder / "manifest.json"


def generation(entry: _store.Entry) -> Path:
    return entry.folder


def pointer(entry: _store.Entry) -> Path:
    return _store.pointer_of(entry.library)


def slot(entry: _store.Entry) -> Path:
    return entry.folder.parent


def artifacts(entry: _store.Entry) -> Path:
    return entry.folder.parents[3]


def cache_root(entry: _store.Entry) -> Path:
    return entry.folder.parents[4]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda entry: entry.library.unlink(), id="library gone"),
        pytest.param(write("alpha.so", b""), id="library empty"),
        pytest.param(write("alpha.so", BYTES[:-1]), id="library one byte short"),
        pytest.param(write("alpha.so", BYTES + b"\0"), id="library one byte long"),
        pytest.param(write("alpha.so", BYTES.replace(b"alpha", b"omega")), id="library of the same size, other bytes"),
        pytest.param(zero_the_middle, id="a page of zeros in the middle"),
        pytest.param(become_a_folder, id="library is a folder"),
        pytest.param(become_a_link(library), id="library behind a link"),
        pytest.param(mode(0o722, library), id="library writable by all"),
        pytest.param(mode(0o720, library), id="library writable by the group"),
        pytest.param(give_away(library), id="library of another user"),
        pytest.param(lambda entry: (entry.folder / "manifest.json").unlink(), id="manifest gone"),
        pytest.param(write("manifest.json", b""), id="manifest empty"),
        pytest.param(write("manifest.json", b"{"), id="manifest truncated"),
        pytest.param(write("manifest.json", b"[]"), id="manifest is a list"),
        pytest.param(write("manifest.json", b"null"), id="manifest null"),
        pytest.param(write("manifest.json", b"\xff\xfe{}"), id="manifest not UTF-8"),
        pytest.param(write("manifest.json", b"{}"), id="manifest without fields"),
        pytest.param(edit_manifest(format=0), id="format of the past"),
        pytest.param(edit_manifest(format=_store.FORMAT + 1), id="format of the future"),
        pytest.param(edit_manifest(facts={**FACTS, "source/src/lib.rs": "bb"}), id="facts of another build"),
        pytest.param(edit_manifest(facts=[]), id="facts are a list"),
        pytest.param(edit_manifest(facts={"source/a": 1}), id="a fact is a number"),
        pytest.param(edit_manifest(source_key="0" * 64), id="source key of another build"),
        pytest.param(edit_manifest(build_key="0" * 64), id="build key of another build"),
        pytest.param(edit_manifest(size=1), id="size of another file"),
        pytest.param(edit_manifest(size="(gone)"), id="no size"),
        pytest.param(edit_manifest(sha256="0" * 64), id="digest of another file"),
        pytest.param(edit_manifest(sha256="(gone)"), id="no digest"),
        pytest.param(edit_manifest(library="../alpha.so"), id="library outside the entry"),
        pytest.param(edit_manifest(library="/lib/alpha.so"), id="library by absolute path"),
        pytest.param(edit_manifest(library=""), id="library without a name"),
        pytest.param(edit_manifest(library=None), id="library null"),
        pytest.param(edit_manifest(glibc_floor=7), id="glibc floor is a number"),
        pytest.param(edit_manifest(began="soon"), id="time is not a number"),
        pytest.param(edit_manifest(began="(gone)"), id="no time"),
        pytest.param(edit_manifest(began=10**400), id="time too large for a float"),
        pytest.param(edit_manifest(token="(gone)"), id="no token"),
        pytest.param(become_a_link(manifest), id="manifest behind a link"),
        pytest.param(mode(0o622, manifest), id="manifest writable by all"),
        pytest.param(give_away(manifest), id="manifest of another user"),
        pytest.param(lambda entry: (entry.folder.parent / "current").unlink(), id="pointer gone"),
        pytest.param(point_at(b""), id="pointer empty"),
        pytest.param(point_at(b"nothing"), id="pointer to a missing folder"),
        pytest.param(point_at(b".."), id="pointer to the parent"),
        pytest.param(point_at(b"../other"), id="pointer to another slot"),
        pytest.param(point_at(b"/tmp"), id="pointer with an absolute path"),
        pytest.param(point_at(b"\xff\0"), id="pointer not UTF-8"),
        pytest.param(point_at(b"a\0b"), id="pointer with a NUL"),
        pytest.param(become_a_link(pointer), id="pointer behind a link"),
        pytest.param(mode(0o622, pointer), id="pointer writable by all"),
        pytest.param(give_away(pointer), id="pointer of another user"),
        pytest.param(become_a_link(generation), id="generation behind a link"),
        pytest.param(mode(0o777, generation), id="generation writable by all"),
        pytest.param(give_away(generation), id="generation of another user"),
        pytest.param(become_a_link(slot), id="build key behind a link"),
        pytest.param(mode(0o770, slot), id="build key writable by the group"),
        pytest.param(become_a_link(artifacts), id="artifacts behind a link"),
        pytest.param(mode(0o777, artifacts), id="artifacts writable by all"),
        pytest.param(become_a_link(cache_root), id="root behind a link"),
        pytest.param(mode(0o777, cache_root), id="root writable by all"),
        pytest.param(give_away(cache_root), id="root of another user"),
    ],
)
def test_an_untrusted_entry_is_a_miss(root: Path, change: Callable[[_store.Entry], None]) -> None:
    """
    A truncated, altered, foreign or planted entry is found by neither look-up, and never raises.
    """
    entry = publish(root)
    assert look_up(root) is not None

    change(entry)

    assert look_up(root) is None
    assert _store.look_up_ignoring([root], MODULE, Fingerprint(FACTS), "toolchain") is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("alpha.so", BYTES[:-1], id="library truncated"),
        pytest.param("alpha.so", b"L" + BYTES[1:], id="library of other bytes"),
        pytest.param("manifest.json", b"{", id="manifest truncated"),
        pytest.param("manifest.json", b"{}", id="manifest without a field"),
    ],
)
def test_a_damaged_entry_is_quarantined(root: Path, name: str, content: bytes) -> None:
    """
    The first look-up moves a damaged entry into the quarantine, and `damaged` reports it.
    """
    entry = publish(root)
    (entry.folder / name).write_bytes(content)

    assert look_up(root) is None
    assert not entry.folder.exists()
    assert [path.read_bytes() for path in (root / "quarantine").rglob(name)] == [content]
    assert _store.damaged([root], MODULE, Fingerprint(FACTS)) is not None
