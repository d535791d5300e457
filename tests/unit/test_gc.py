"""
Garbage collection without a compiler: what must go, what may not, and what is left when it went.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rust_ext_loader import _record, _settings
from rust_ext_loader._errors import CacheWarning, SettingError
from rust_ext_loader.cache import _gc, _roots, _store
from rust_ext_loader.cache._gc import ENTRY, SET_ASIDE, TARGET, Item, Limits
from rust_ext_loader.facts._fingerprint import Fingerprint
from rust_ext_loader.files import _locks

DAY = 86400.0
NOW = 1000 * DAY


def item(name: str, *, days: float, size: int = 10, kind: str = ENTRY, owner: str = "m") -> Item:
    return Item(Path(name), kind, owner, size, NOW - days * DAY)


ITEMS = [
    item("old", days=40),
    item("older", days=50, owner="n"),
    item("target", days=30, kind=TARGET, owner=""),
    item("aside", days=20, kind=SET_ASIDE, owner=""),
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
            ["older", "old", "target", "aside", "recent"],
            id="what is in use stays, whatever the limit",
        ),
        pytest.param(Limits(max_age=45 * DAY), ["older"], id="by age"),
        pytest.param(Limits(max_age=45 * DAY, max_size=35), ["older", "old", "target"], id="both"),
        pytest.param(
            Limits(max_size=0, keep=1), ["old", "target", "aside", "recent"], id="the last of each module stays"
        ),
        pytest.param(Limits(max_size=0, keep=2), ["old", "target", "aside"], id="the last two"),
        pytest.param(Limits(max_age=DAY, keep=9), ["target", "aside"], id="keep is for entries"),
    ],
)
def test_what_goes_and_in_which_order(limits: Limits, gone: list[str]) -> None:
    """
    Least recently used first, until the limits hold; never what was used within the grace.
    """
    assert [str(item.path) for item in _gc.doomed(ITEMS, limits, NOW - _gc.GRACE)] == gone


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
    Make a file or folder, and all in it, look as if last touched so long ago.
    """
    then = time.time() - days * DAY
    for where, _, names in os.walk(path, topdown=False):
        for name in names:
            os.utime(Path(where, name), (then, then))
        os.utime(where, (then, then))


def test_an_entry_goes_and_is_a_miss(root: Path) -> None:
    """
    With its slot, when nothing else is in it; the others stay.
    """
    old, young = publish(root, "m", "1"), publish(root, "m", "2")
    age(old.folder.parent, 2)

    done = _gc.collect(root, Limits(max_size=0))
    assert [gone.path for gone in done.gone] == [old.folder]
    assert done.freed > 1000
    assert not old.folder.parent.exists()
    assert _store.look_up([root], "m", Fingerprint(old.facts)) is None
    assert _store.look_up([root], "m", Fingerprint(young.facts)) == young
    assert not list((root / "staging").iterdir())


def test_only_telling_changes_nothing(root: Path) -> None:
    """
    What would go is named, and stays.
    """
    old = publish(root, "m", "1")
    age(old.folder.parent, 2)

    assert len(_gc.collect(root, Limits(max_size=0), dry_run=True).gone) == 1
    assert _store.look_up([root], "m", Fingerprint(old.facts)) == old


def test_an_older_generation_goes_alone(root: Path) -> None:
    """
    The one in force stays with its pointer.
    """
    old, new = publish(root, "m", "1"), publish(root, "m", "1")
    age(old.folder, 2)

    assert [gone.path for gone in _gc.collect(root, Limits(max_size=0)).gone] == [old.folder]
    assert _store.look_up([root], "m", Fingerprint(new.facts)) == new


def test_a_stamp_of_use_keeps_an_entry(root: Path) -> None:
    """
    A look-up that was used stamps it, at most once a day.
    """
    entry = publish(root, "m", "1")
    age(entry.folder.parent, 2)
    _store.stamp_use(entry.library)
    first = (entry.folder / "used").stat().st_mtime_ns
    _store.stamp_use(entry.library)

    assert (entry.folder / "used").stat().st_mtime_ns == first
    assert _gc.collect(root, Limits(max_size=0)).gone == ()


def test_a_record_in_use_keeps_its_library(root: Path, tmp_path: Path) -> None:
    """
    The warm path looks at nothing but its record, and stamps that, at most once a day.
    """
    entry = publish(root, "m", "1")
    age(entry.folder.parent, 40)
    identity = _record.identify("m", str(tmp_path), "auto", {}, None)
    data = _record.compose(
        identity, declared=[], present={}, absent=[], library=str(entry.library), started_ns=time.time_ns(), boot=None
    )
    assert data is not None
    record = Path(_record.path_of(str(root), identity))
    record.parent.mkdir()
    record.write_bytes(data)
    record.chmod(0o600)
    age(record.parent, 2)
    assert _gc.collect(root, Limits(max_age=30 * DAY)).gone == ()

    assert _record.read(str(root), identity, {}) == str(entry.library)
    stamped = record.stat().st_mtime_ns
    assert abs(time.time_ns() - stamped) < 60 * 10**9
    assert _record.read(str(root), identity, {}) == str(entry.library)
    assert record.stat().st_mtime_ns == stamped
    age(record.parent, 31)
    assert [gone.path for gone in _gc.collect(root, Limits(max_age=30 * DAY)).gone] == [entry.folder]


def test_a_target_folder_that_is_built_in_stays(root: Path) -> None:
    """
    However old it looks; it goes when nobody holds it.
    """
    folder = root / "targets" / "0123456789ab-0123456789ab"
    folder.mkdir(parents=True)
    (folder / "output").write_bytes(b"x" * 1000)
    age(folder, 40)
    lock_file = folder.with_name(folder.name + ".lock")

    with _locks.hold(lock_file, holder="m", timeout=1, ready=lambda: None, say=print):
        assert _gc.collect(root, Limits(max_size=0)).gone == ()
        assert folder.exists()
    assert [gone.kind for gone in _gc.collect(root, Limits(max_size=0)).gone] == [TARGET]
    assert not folder.exists()


def test_what_was_set_aside_goes_too(root: Path) -> None:
    """
    By its age, as an entry does.
    """
    entry = publish(root, "m", "1")
    _store.quarantine_library(root, entry.library)
    age(root / "quarantine", 2)

    assert [gone.kind for gone in _gc.collect(root, Limits(max_size=0)).gone] == [SET_ASIDE]


def test_notes_of_last_year_are_forgotten(root: Path) -> None:
    """
    They only save time; those of last month stay.
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


def test_what_is_not_ours_stays(root: Path) -> None:
    """
    A root may be a folder that holds other things, under names that we use as well. Links lead out of it.
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
    (outside / "dear").touch()
    for link in (f"targets/{'0' * 12}-{'0' * 12}", f"local/{'0' * 20}"):
        (root / link).symlink_to(outside)
    age(root, 1000)
    age(outside, 1000)

    assert _gc.collect(root, Limits(max_size=0, max_age=1)).gone == ()
    publish(root, "m", "1")
    assert [name for name in foreign if not (root / name).exists()] == []
    assert (outside / "dear").exists()


def test_a_build_collects_at_most_once_an_hour(root: Path) -> None:
    """
    Past the limit, and never with an error.
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


def test_a_limit_that_means_nothing_fails_no_build(root: Path) -> None:
    """
    The build has succeeded; that nothing is held to the limit is said.
    """
    with pytest.warns(
        CacheWarning, match=f"{root} is held to no limit: {_settings.CACHE_LIMIT}='ten' is not understood"
    ):
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
    Decimal units, with or without a `B`, in either case.
    """
    assert _settings.parse_size("X", text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "ten", "10X", "1GiB", "nan", "inf", "1e999", "1e308T"])
def test_what_is_no_size(text: str) -> None:
    """
    Refused, by the name of the setting.
    """
    with pytest.raises(SettingError, match=r"^X(=| is empty)"):
        _settings.parse_size("X", text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("2m", 120), ("12h", 43200), ("30d", 30 * DAY), ("0.5w", 3.5 * DAY)]
)
def test_ages(text: str, seconds: float) -> None:
    """
    A number and a unit.
    """
    assert _settings.parse_age("X", text) == seconds


@pytest.mark.parametrize("text", ["", "d", "30", "-1d", "1y"])
def test_what_is_no_age(text: str) -> None:
    """
    Refused, by the name of the setting; a unit must be there.
    """
    with pytest.raises(SettingError, match=r"^X(=| is empty)"):
        _settings.parse_age("X", text)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (123_456_789, "123 MB"), (10**10, "10.0 GB")]
)
def test_sizes_as_people_read_them(count: int, text: str) -> None:
    """
    Three digits at the most, or one behind the point.
    """
    assert _settings.spell_size(count) == text
