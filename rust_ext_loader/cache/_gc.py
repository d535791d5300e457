"""
Keep a cache within bounds: what has not been used for longest goes first.

Entries, what was set aside, and target folders count alike. Use is stamped at
most once a day: on a file beside the library, and on the records of the warm
path, which name the library that they led to.

Invariant: nothing goes that was used within the last hour, since a process may
be about to load it, nor a target folder that somebody builds in. What goes is
renamed first, so that its name is whole or absent. An entry that is gone is a
miss, and never an error.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
import warnings
from dataclasses import dataclass
from pathlib import Path

from .. import _record, _settings
from .._errors import CacheWarning, LockTimeout, SettingError
from ..files import _locks, _staging
from . import _local_copy, _store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Seconds for which whatever was used is left alone.
GRACE = 3600.0
#: Seconds after which a private target folder, whose lock nobody can ask for, belongs to nobody who is alive.
_ABANDONED_AFTER = 24 * 3600.0
#: Seconds after which notes that only save time are forgotten.
_FORGOTTEN_AFTER = 90 * 24 * 3600.0
#: Seconds between two looks at the size of a cache.
_LOOK_EVERY = 3600.0

#: How we name what may go, by the folder that it lies in: a root may be somebody's folder that holds other things as well.
_OURS = {
    "artifacts": re.compile(r"[0-9a-f]+-[0-9a-f]{8}(?:-[0-9a-f]{12})?"),
    "targets": re.compile(r"[0-9a-f]{12}-[0-9a-f]{12}(?:-.*)?"),
    "quarantine": re.compile(r".*-[0-9a-f]{8}"),
    _local_copy.FOLDER: re.compile(r"[0-9a-f]{20}"),
}
#: The same of notes, by their paths.
_NOTES = re.compile(
    r"records/[0-9a-f]{32}|probes/[0-9a-f]+\.json|checkouts/[0-9a-f]{12}/[^/]+\.json|.*/\.[^/]*\.[0-9a-f]{32}"
)

ENTRY, TARGET, SET_ASIDE, COPY = "entry", "target folder", "set aside", "local copy"


@dataclass(frozen=True, slots=True)
class Item:
    """
    Something that can go.
    """

    path: Path
    kind: str
    #: What it is of: the module of an entry.
    owner: str
    #: Bytes.
    size: int
    #: Seconds since the epoch at which it was used last, to the day.
    used: float


@dataclass(frozen=True, slots=True)
class Limits:
    """
    What may stay.
    """

    #: Bytes in all.
    max_size: int | None = None
    #: Seconds without use.
    max_age: float | None = None
    #: As many entries of each module stay whatever the other limits say, the ones used last.
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Collected:
    """
    What went, and what a root held before.
    """

    gone: tuple[Item, ...]
    size: int

    @property
    def freed(self) -> int:
        """
        Bytes.
        """
        return sum(item.size for item in self.gone)


def collect(root: Path, limits: Limits, *, dry_run: bool = False, grace: float = GRACE) -> Collected:
    """
    Take away what a root holds beyond the limits; with *dry_run*, only tell.
    """
    items = survey(root)
    going = doomed(items, limits, time.time() - grace)
    size = sum(item.size for item in items)
    if dry_run:
        return Collected(tuple(going), size)
    gone = tuple(item for item in going if _take_away(root, item))
    _forget(root)
    return Collected(gone, size)


def after_build(root: Path, environment: Mapping[str, str]) -> None:
    """
    Hold a root to its limit, if nobody has looked for an hour. Never fails: the build has succeeded.
    """
    try:
        limit = _settings.size(_settings.CACHE_LIMIT, environment, _settings.DEFAULT_LIMIT)
        stamp = root / "collected"
        if limit is not None and not _is_young(stamp, _LOOK_EVERY):
            _staging.write_atomically(stamp, b"")
            collect(root, Limits(max_size=limit))
    except SettingError as error:
        warnings.warn(CacheWarning(f"{root} is held to no limit: {error}"), stacklevel=2)
    except OSError:
        # A later build looks again.
        return


def doomed(items: Sequence[Item], limits: Limits, before: float) -> list[Item]:
    """
    The items beyond the limits, least recently used first, of those that were not used since *before*.
    """
    kept: set[Path] = set()
    for owner in {item.owner for item in items if item.kind == ENTRY} if limits.keep else ():
        newest = sorted(
            (item for item in items if item.kind == ENTRY and item.owner == owner), key=lambda item: -item.used
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
    All that can go, with its size and last use.
    """
    led_to = _record.uses(os.fspath(root))
    items = []
    for generation in _ours(root, "artifacts", 4):
        module = generation.relative_to(root / "artifacts").parts[0]
        by_record = (led_to.get(os.fspath(file), 0.0) for file in generation.glob("*.*"))
        items.append(Item(generation, ENTRY, module, _size(generation), max(_stamped(generation), *by_record)))
    items += [Item(folder, TARGET, "", _size(folder), _last_build(folder)) for folder in _ours(root, "targets")]
    items += [Item(folder, COPY, "", _size(folder), _stamped(folder)) for folder in _ours(root, _local_copy.FOLDER)]
    items += [Item(folder, SET_ASIDE, "", _size(folder), _stamp(folder)) for folder in _ours(root, "quarantine")]
    return items


def _ours(root: Path, kind: str, depth: int = 1) -> Iterator[Path]:
    return (folder for folder in _folders(root / kind, depth) if _OURS[kind].fullmatch(folder.name))


def _folders(top: Path, depth: int) -> Iterator[Path]:
    if depth == 0:
        yield top
        return
    with contextlib.suppress(OSError), os.scandir(top) as found:
        for item in found:
            if item.is_dir(follow_symlinks=False):
                yield from _folders(Path(item.path), depth - 1)


def _stamped(folder: Path) -> float:
    return max(_stamp(folder), _stamp(folder / _store.STAMP))


def _last_build(folder: Path) -> float:
    return max(_stamp(folder), _stamp(folder / "rust-ext-state.json"))


def _stamp(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _is_young(path: Path, seconds: float) -> bool:
    # One from the future says nothing.
    return 0 <= time.time() - _stamp(path) < seconds


def _size(folder: Path) -> int:
    """
    Bytes of all files below; one with several names counts once.
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


def _take_away(root: Path, item: Item) -> bool:
    try:
        if item.kind != TARGET:
            _remove(root, item.path)
            if item.kind == ENTRY:
                _remove_if_empty(root, item.path.parent)
            return True
        lock_file = item.path.with_name(item.path.name + ".lock")
        with _locks.hold(lock_file, holder="garbage collection", timeout=0, ready=lambda: None, say=lambda _: None):
            # Whoever held it until now has used it.
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
        # Another collector was faster, or a loaded library cannot be moved here.
        return False
    return True


def _remove(root: Path, path: Path) -> None:
    grave = _staging.private_folder(root / "staging") / uuid.uuid4().hex
    _staging.move(path, grave)
    shutil.rmtree(grave, ignore_errors=True)


def _remove_if_empty(root: Path, slot: Path) -> None:
    """
    A slot without generations has only pointers that lead nowhere; a young one is somebody's who publishes.
    """
    if not any(_folders(slot, 1)) and not any(_is_young(pointer, GRACE) for pointer in slot.iterdir()):
        _remove(root, slot)


def _forget(root: Path) -> None:
    for name in ("records", "probes", "checkouts"):
        for where, _, files in os.walk(root / name):
            for file in files:
                path = Path(where, file)
                with contextlib.suppress(OSError):
                    if (
                        _NOTES.fullmatch(path.relative_to(root).as_posix())
                        and time.time() - _stamp(path) > _FORGOTTEN_AFTER
                    ):
                        path.unlink()
