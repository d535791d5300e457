"""
Keep a cache within its limits by removing the least recently used items.

Items are entries, quarantined entries, local copies and target folders. The time of
the last use is updated at most once a day. It is the timestamp of a file beside the
library, or of a record of the warm path that names the library.

Invariant: an item that was used within the last hour is kept, because a process may
be about to load it. A target folder with a running build is kept, too. An item is
renamed before it is removed, so its path holds all of it or nothing. A removed entry is
a miss, never an error.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import warnings
from pathlib import Path

from .. import _record, _settings
from .._errors import CacheWarning, LockTimeout, SettingError
from .._values import dataclass
from ..files import _locks, _staging
from . import _local_copy, _store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Seconds after its last use during which an item is kept.
GRACE = 3600.0
#: Seconds after which a private target folder, which has no lock, counts as abandoned.
_ABANDONED_AFTER = 24 * 3600.0
#: Seconds after which records and other files that only save time are removed.
_NOTES_KEPT = 90 * 24 * 3600.0
#: Seconds between two automatic collections.
_COLLECT_EVERY = 3600.0

#: Names of items by their folder. Other names are never touched: the root may be a folder with other files in it.
_ITEM_NAMES = {
    "artifacts": re.compile(r"[0-9a-f]+-[0-9a-f]{8}(?:-[0-9a-f]{12})?"),
    "targets": re.compile(r"[0-9a-f]{12}-[0-9a-f]{12}(?:-.*)?"),
    "quarantine": re.compile(r".*-[0-9a-f]{8}"),
    _local_copy.FOLDER: re.compile(r"[0-9a-f]{20}"),
}
#: Paths of records and other files that only save time.
_NOTES = re.compile(
    r"records/[0-9a-f]{32}|probes/[0-9a-f]+\.json|checkouts/[0-9a-f]{12}/[^/]+\.json|.*/\.[^/]*\.[0-9a-f]{32}"
)

ENTRY, TARGET, QUARANTINED, COPY = "entry", "target folder", "quarantined", "local copy"


@dataclass(frozen=True, slots=True)
class Item:
    """
    A folder that a collection can remove.
    """

    path: Path
    kind: str
    #: The module of an entry; empty for other kinds.
    module: str
    #: Bytes.
    size: int
    #: Last use, in seconds since the epoch, accurate to a day.
    used: float


@dataclass(frozen=True, slots=True)
class Limits:
    """
    What a collection keeps.
    """

    #: Bytes in total.
    max_size: int | None = None
    #: Seconds without use.
    max_age: float | None = None
    #: Number of most recently used entries of each module that are kept regardless of the other limits.
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Collected:
    """
    The removed items, and the size of the root before the removal.
    """

    removed: tuple[Item, ...]
    size: int

    @property
    def freed(self) -> int:
        """
        The size of the removed items, in bytes.
        """
        return sum(item.size for item in self.removed)


def collect(root: Path, limits: Limits, *, dry_run: bool = False, grace: float = GRACE) -> Collected:
    """
    Remove the items of a root beyond the limits; with *dry_run*, only report them.
    """
    items = survey(root)
    beyond = beyond_limits(items, limits, time.time() - grace)
    size = sum(item.size for item in items)
    if dry_run:
        return Collected(tuple(beyond), size)
    removed = tuple(item for item in beyond if _remove_item(root, item))
    _remove_old_notes(root)
    return Collected(removed, size)


def after_build(root: Path, environment: Mapping[str, str]) -> None:
    """
    Collect down to the size limit, at most once an hour. Never fails: the build itself has succeeded.
    """
    try:
        limit = _settings.size(_settings.CACHE_LIMIT, environment, _settings.DEFAULT_LIMIT)
        stamp = root / "collected"
        if limit is not None and not _is_young(stamp, _COLLECT_EVERY):
            _staging.write_atomically(stamp, b"")
            collect(root, Limits(max_size=limit))
    except SettingError as error:
        warnings.warn(CacheWarning(f"{root} has no size limit: {error}"), stacklevel=2)
    except OSError:
        # A later build collects again.
        return


def beyond_limits(items: Sequence[Item], limits: Limits, before: float) -> list[Item]:
    """
    The items beyond the limits that were last used before *before*, least recently used first.
    """
    kept: set[Path] = set()
    for module in {item.module for item in items if item.kind == ENTRY} if limits.keep else ():
        newest = sorted(
            (item for item in items if item.kind == ENTRY and item.module == module), key=lambda item: -item.used
        )
        kept.update(item.path for item in newest[: limits.keep])
    size = sum(item.size for item in items)
    found = []
    for item in sorted(items, key=lambda item: (item.used, str(item.path))):
        too_old = limits.max_age is not None and item.used < before + GRACE - limits.max_age
        too_much = limits.max_size is not None and size > limits.max_size
        if item.used < before and item.path not in kept and (too_old or too_much):
            found.append(item)
            size -= item.size
    return found


def survey(root: Path) -> list[Item]:
    """
    Every item with its size and last use.
    """
    used_by_record = _record.uses(os.fspath(root))
    items = []
    for generation in _items(root, "artifacts", 4):
        module = generation.relative_to(root / "artifacts").parts[0]
        by_record = (used_by_record.get(os.fspath(file), 0.0) for file in generation.glob("*.*"))
        items.append(Item(generation, ENTRY, module, _size(generation), max(_last_use(generation), *by_record)))
    items += [Item(folder, TARGET, "", _size(folder), _last_build(folder)) for folder in _items(root, "targets")]
    items += [Item(folder, COPY, "", _size(folder), _last_use(folder)) for folder in _items(root, _local_copy.FOLDER)]
    items += [Item(folder, QUARANTINED, "", _size(folder), _mtime(folder)) for folder in _items(root, "quarantine")]
    return items


def _items(root: Path, kind: str, depth: int = 1) -> Iterator[Path]:
    return (folder for folder in _folders(root / kind, depth) if _ITEM_NAMES[kind].fullmatch(folder.name))


def _folders(top: Path, depth: int) -> Iterator[Path]:
    if depth == 0:
        yield top
        return
    with contextlib.suppress(OSError), os.scandir(top) as found:
        for item in found:
            if item.is_dir(follow_symlinks=False):
                yield from _folders(Path(item.path), depth - 1)


def _last_use(folder: Path) -> float:
    return max(_mtime(folder), _mtime(folder / _store.STAMP))


def _last_build(folder: Path) -> float:
    return max(_mtime(folder), _mtime(folder / "rust-ext-state.json"))


def _mtime(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _is_young(path: Path, seconds: float) -> bool:
    # Timestamps in the future are ignored (clock skew).
    return 0 <= time.time() - _mtime(path) < seconds


def _size(folder: Path) -> int:
    """
    Bytes of all files in a folder; a file with several hard links counts once.
    """
    counted: set[tuple[int, int]] = set()
    size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(where, name))
                if status.st_nlink == 1 or (status.st_dev, status.st_ino) not in counted:
                    counted.add((status.st_dev, status.st_ino))
                    size += status.st_size
    return size


def _remove_item(root: Path, item: Item) -> bool:
    try:
        if item.kind != TARGET:
            _remove(root, item.path)
            if item.kind == ENTRY:
                _remove_if_empty(root, item.path.parent)
            return True
        lock_file = item.path.with_name(item.path.name + ".lock")
        with _locks.hold(lock_file, holder="garbage collection", timeout=0, ready=lambda: None, say=lambda _: None):
            # A build that held the lock until now has used the folder.
            if _last_build(item.path) > item.used:
                return False
            _remove(root, item.path)
    except LockTimeout:
        return False
    except _locks.LockUnavailable:
        if _is_young(item.path, _ABANDONED_AFTER):
            return False
        _remove(root, item.path)
    except OSError:
        # Another process removed it first, or the system does not allow moving a loaded library.
        return False
    return True


def _remove(root: Path, path: Path) -> None:
    doomed = _staging.private_folder(root / "staging") / os.urandom(16).hex()
    _staging.move(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _remove_if_empty(root: Path, slot: Path) -> None:
    """
    Remove a slot without generations, unless a pointer in it is young: that may belong to a running publish.
    """
    if not any(_folders(slot, 1)) and not any(_is_young(pointer, GRACE) for pointer in slot.iterdir()):
        _remove(root, slot)


def _remove_old_notes(root: Path) -> None:
    for name in ("records", "probes", "checkouts"):
        for where, _, files in os.walk(root / name):
            for file in files:
                path = Path(where, file)
                with contextlib.suppress(OSError):
                    if _NOTES.fullmatch(path.relative_to(root).as_posix()) and time.time() - _mtime(path) > _NOTES_KEPT:
                        path.unlink()
