"""
Garbage collection without a compiler: what is removed, and what is kept.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rust_ext_loader import _record, _settings, _warm
from rust_ext_loader._errors import CacheWarning, SettingError
from rust_ext_loader.cache import _gc, _roots, _store
from rust_ext_loader.cache._gc import ENTRY, QUARANTINED, TARGET, Item, Limits
from rust_ext_loader.facts._fingerprint import Fingerprint
from rust_ext_loader.files import _locks

DAY = 86400.0
NOW = 1000 * DAY


def item(name: str, *, days: float, size: int = 10, kind: str = ENTRY, module: str = "m") -> Item:
    return Item(Path(name), kind, module, size, NOW - days * DAY)


ITEMS = [
    item("old", days=40),
    item("older", days=50, module="n"),
    item("target", days=30, kind=TARGET, module=""),
    item("quarantined", days=20, kind=QUARANTINED, module=""),
    item("recent", days=1),
    item("now", days=0),
]


@pytest.mark.parametrize(
    ("limits", "gone"),
    [
        pytest.param(Limits(), [], id="no limit"),
        pytest.param(Limits(max_size=60), [], id="just enough"),
        pytest.param(Limits(max_size=59), ["older"], id="one too many"),
        pytest.param(Limits(max_size=35), ["older", "old", "target"], id="target folders count"),
        pytest.param(
            Limits(max_size=0),
            ["older", "old", "target", "quarantined", "recent"],
            id="entries in use are kept with any limit",
        ),
        pytest.param(Limits(max_age=45 * DAY), ["older"], id="by age"),
        pytest.param(Limits(max_age=45 * DAY, max_size=35), ["older", "old", "target"], id="both"),
        pytest.param(
            Limits(max_size=0, keep=1), ["old", "target", "quarantined", "recent"], id="the last of each module is kept"
        ),
        pytest.param(Limits(max_size=0, keep=2), ["old", "target", "quarantined"], id="the last two"),
        pytest.param(Limits(max_age=DAY, keep=9), ["target", "quarantined"], id="keep applies to entries only"),
    ],
)
def test_items_are_removed_in_order_of_use(limits: Limits, gone: list[str]) -> None:
    """
    The least recently used items are removed first, until the limits hold. Items used in the grace period are kept.
    """
    assert [str(item.path) for item in _gc.beyond_limits(ITEMS, limits, NOW - _gc.GRACE)] == gone


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "cache"
    assert _roots.ready(root) is None
    return root


def publish(root: Path, module: str, text: str) -> _store.Entry:
    artifact = root.parent / "artifact.so"
    artifact.write_bytes(b"x" * 1000)
    origin = _store.Origin("1.95.0", "abi3", None, time.time(), 1.0, None)
    return _store.publish(
        root, module, Fingerprint({"source/lib.rs": text, "request/module": module}), artifact, "alpha.so", origin
    )


def age(path: Path, days: float) -> None:
    """
    Set the times of a file or folder, and of everything in it, to `days` ago.
    """
    then = time.time() - days * DAY
    for where, _, names in os.walk(path, topdown=False):
        for name in names:
            os.utime(Path(where, name), (then, then))
        os.utime(where, (then, then))


def test_a_removed_entry_is_a_miss(root: Path) -> None:
    """
    An entry is removed together with its slot, if the slot has no other content. Other entries are kept.
    """
    old, young = publish(root, "m", "1"), publish(root, "m", "2")
    age(old.folder.parent, 2)

    done = _gc.collect(root, Limits(max_size=0))
    assert [gone.path for gone in done.removed] == [old.folder]
    assert done.freed > 1000
    assert not old.folder.parent.exists()
    assert _store.look_up([root], "m", Fingerprint(old.facts)) is None
    assert _store.look_up([root], "m", Fingerprint(young.facts)) == young
    assert not list((root / "staging").iterdir())


def test_a_dry_run_removes_nothing(root: Path) -> None:
    """
    A dry run names what would be removed.
    """
    old = publish(root, "m", "1")
    age(old.folder.parent, 2)

    assert len(_gc.collect(root, Limits(max_size=0), dry_run=True).removed) == 1
    assert _store.look_up([root], "m", Fingerprint(old.facts)) == old


def test_an_old_generation_is_removed_alone(root: Path) -> None:
    """
    The current generation is kept, with its pointer.
    """
    old, new = publish(root, "m", "1"), publish(root, "m", "1")
    age(old.folder, 2)

    assert [gone.path for gone in _gc.collect(root, Limits(max_size=0)).removed] == [old.folder]
    assert _store.look_up([root], "m", Fingerprint(new.facts)) == new


def test_a_recent_use_keeps_an_entry(root: Path) -> None:
    """
    Using an entry updates its time of use, at most once a day.
    """
    entry = publish(root, "m", "1")
    age(entry.folder.parent, 2)
    _store.stamp_use(entry.library)
    first = (entry.folder / "used").stat().st_mtime_ns
    _store.stamp_use(entry.library)

    assert (entry.folder / "used").stat().st_mtime_ns == first
    assert _gc.collect(root, Limits(max_size=0)).removed == ()


def test_a_used_record_keeps_its_library(root: Path, tmp_path: Path) -> None:
    """
    A warm import updates only the timestamp of its record, at most once a day. The collector counts this as a use.
    """
    entry = publish(root, "m", "1")
    age(entry.folder.parent, 40)
    identity = _warm.identify("m", str(tmp_path), "auto", {}, None)
    data = _record.compose(
        identity, declared=[], present={}, absent=[], library=str(entry.library), started_ns=time.time_ns(), boot=None
    )
    assert data is not None
    record = Path(_warm.path_of(str(root), identity))
    record.parent.mkdir()
    record.write_bytes(data)
    record.chmod(0o600)
    age(record.parent, 2)
    assert _gc.collect(root, Limits(max_age=30 * DAY)).removed == ()

    assert _warm.read(str(root), identity, {}) == str(entry.library)
    stamped = record.stat().st_mtime_ns
    assert abs(time.time_ns() - stamped) < 60 * 10**9
    assert _warm.read(str(root), identity, {}) == str(entry.library)
    assert record.stat().st_mtime_ns == stamped
    age(record.parent, 31)
    assert [gone.path for gone in _gc.collect(root, Limits(max_age=30 * DAY)).removed] == [entry.folder]


def test_a_locked_target_folder_is_kept(root: Path) -> None:
    """
    An old target folder is kept while a process holds its lock, and removed afterwards.
    """
    folder = root / "targets" / "0123456789ab-0123456789ab"
    folder.mkdir(parents=True)
    (folder / "output").write_bytes(b"x" * 1000)
    age(folder, 40)
    lock_file = folder.with_name(folder.name + ".lock")

    with _locks.hold(lock_file, holder="m", timeout=1, ready=lambda: None, say=print):
        assert _gc.collect(root, Limits(max_size=0)).removed == ()
        assert folder.exists()
    assert [gone.kind for gone in _gc.collect(root, Limits(max_size=0)).removed] == [TARGET]
    assert not folder.exists()


def test_quarantined_entries_are_removed(root: Path) -> None:
    """
    Quarantined entries are removed by age, like other entries.
    """
    entry = publish(root, "m", "1")
    _store.quarantine_library(root, entry.library)
    age(root / "quarantine", 2)

    assert [gone.kind for gone in _gc.collect(root, Limits(max_size=0)).removed] == [QUARANTINED]


def test_old_records_and_notes_are_removed(root: Path) -> None:
    """
    Records and notes only save time. Old ones are removed, and recent ones are kept.
    """
    young, old = f"records/{'b' * 32}", f"records/{'a' * 32}"
    for name, days in ((old, 100), (young, 30), (f"checkouts/{'c' * 12}/m.json", 100), ("probes/d0.json", 30)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
        os.utime(root / name, (time.time() - days * DAY,) * 2)
    _gc.collect(root, Limits())

    assert sorted(path.name for path in root.rglob("*") if path.is_file() and path.name != "CACHEDIR.TAG") == [
        "b" * 32,
        "d0.json",
    ]


def test_foreign_files_are_kept(root: Path) -> None:
    """
    A root may contain other files under names that the cache also uses. Links are not followed.
    """
    foreign = [
        *(
            "staging/site/index.html",
            "targets/release/app",
            "records/2019/january.csv",
            "records/letter.txt",
            "checkouts/project/main.rs",
        ),
        *("quarantine/virus/sample", "artifacts/a/b/c/d/app.tar", "local/bin/tool", "probes/mars/photo.json"),
    ]
    for name in foreign:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * 1000)
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    for link in (f"targets/{'0' * 12}-{'0' * 12}", f"local/{'0' * 20}"):
        (root / link).symlink_to(outside)
    age(root, 1000)
    age(outside, 1000)

    assert _gc.collect(root, Limits(max_size=0, max_age=1)).removed == ()
    publish(root, "m", "1")
    assert [name for name in foreign if not (root / name).exists()] == []
    assert (outside / "kept").exists()


def test_a_build_collects_at_most_once_an_hour(root: Path) -> None:
    """
    A build collects only beyond the limit, at most once an hour, and never fails because of it.
    """
    entries = [publish(root, "m", str(number)) for number in range(5)]
    for number, entry in enumerate(entries[:3]):
        age(entry.folder.parent, 9 - number)
    one = max(item.size for item in _gc.survey(root))
    limit = {_settings.CACHE_LIMIT: str(3 * one)}

    _gc.after_build(root, limit)
    assert [entry.folder.exists() for entry in entries] == [False, False, True, True, True]
    _gc.after_build(root, {_settings.CACHE_LIMIT: "1k"})
    assert entries[2].folder.exists()
    age(root / "collected", 0)
    os.utime(root / "collected", (1, 1))
    _gc.after_build(root, {_settings.CACHE_LIMIT: "0"})
    assert entries[2].folder.exists()
    _gc.after_build(root, {_settings.CACHE_LIMIT: "1k"})
    assert [entry.folder.exists() for entry in entries] == [False, False, False, True, True]


def test_an_invalid_limit_does_not_fail_a_build(root: Path) -> None:
    """
    After a successful build an invalid limit causes only a warning.
    """
    with pytest.warns(CacheWarning, match=f"{root} has no size limit: {_settings.CACHE_LIMIT}='ten' is invalid"):
        _gc.after_build(root, {_settings.CACHE_LIMIT: "ten"})


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("1k", 1000),
        ("500M", 500 * 10**6),
        ("10GB", 10**10),
        ("1.5 g", 1_500_000_000),
        ("2T", 2 * 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    """
    Sizes have decimal units, with or without a `B`, in upper or lower case.
    """
    assert _settings.parse_size("X", text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "ten", "10X", "1GiB", "nan", "inf", "1e999", "1e308T"])
def test_invalid_sizes(text: str) -> None:
    """
    An invalid size is an error that names the setting.
    """
    with pytest.raises(SettingError, match=r"^X(=| is empty)"):
        _settings.parse_size("X", text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("2m", 120), ("12h", 43200), ("30d", 30 * DAY), ("0.5w", 3.5 * DAY)]
)
def test_ages(text: str, seconds: float) -> None:
    """
    An age is a number with a unit.
    """
    assert _settings.parse_age("X", text) == seconds


@pytest.mark.parametrize("text", ["", "d", "30", "-1d", "1y"])
def test_invalid_ages(text: str) -> None:
    """
    An invalid age is an error that names the setting. A unit is required.
    """
    with pytest.raises(SettingError, match=r"^X(=| is empty)"):
        _settings.parse_age("X", text)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (123_456_789, "123 MB"), (10**10, "10.0 GB")]
)
def test_printed_sizes(count: int, text: str) -> None:
    """
    A printed size has at most three digits, or one decimal.
    """
    assert _settings.spell_size(count) == text
