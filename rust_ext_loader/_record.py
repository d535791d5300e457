"""
Write the records of the warm path, and list the libraries that they name.

Invariant: no record is written while a timestamp is so young that a later edit in
the same clock tick would not change it. `_warm` reads records and defines their fields.
"""

from __future__ import annotations

import _imp
import marshal
import os

from . import _stat, _warm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping
    from typing import Any

#: With at least this number of files in a folder, opening the folder saves more than it costs.
_MANY = 6

#: Index of the field that names the library.
_LIBRARY = 6


def compose(  # noqa: PLR0913 - the fields of a record, by name
    identity: _warm.Identity,
    *,
    declared: Iterable[tuple[str, str | None]],
    present: Mapping[str, _warm.Signature],
    absent: Iterable[str],
    library: str,
    started_ns: int,
    boot: str | None,
    renamed: Container[str] = (),
    search_path: tuple[str, ...] | None = None,
) -> bytes | None:
    """
    The bytes of a record; `None` while a timestamp is not settled, or if the boot id is unknown.

    `search_path` is `sys.path` if installed distributions were read. `boot` is the boot id if CPU features were read.
    `started_ns` is the wall clock before the first file of `present` was read (`started_at`). Files in `renamed` are
    only replaced by a rename and never written in place, so their timestamps need not be settled.
    """
    if boot == "":
        return None
    if not all(_stat.is_settled(found, started_ns) for path, found in present.items() if path not in renamed):
        return None
    values = tuple((name, _warm.sealed(value)) for name, value in declared)
    fields: tuple[Any, ...] = (
        _warm.FORMAT,
        identity,
        values,
        search_path,
        tuple(_by_folder(present)),
        tuple(sorted(set(map(_checked_instead, absent)))),
        library,
        boot,
    )
    data = marshal.dumps(fields)
    return _imp.source_hash(_warm.FORMAT, data) + data


def _by_folder(present: Mapping[str, _warm.Signature]) -> Iterator[tuple[str, tuple[str, ...], bytes]]:
    """
    The files in groups: folder, file names and packed signatures. Each folder with many files is one group.

    The first group holds all other files. Its folder is empty, and its names are paths.
    """
    folders: dict[str, list[str]] = {}
    for path in sorted(present):
        folder, name = os.path.split(path)
        folders.setdefault(folder if name else "", []).append(path)
    many = {folder: paths for folder, paths in folders.items() if _warm.FOLDER_FLAGS and folder and len(paths) >= _MANY}
    few = tuple(path for folder, paths in folders.items() if folder not in many for path in paths)
    yield "", few, _warm.packed([present[path] for path in few])
    for folder, paths in many.items():
        yield folder, tuple(map(os.path.basename, paths)), _warm.packed([present[path] for path in paths])


def _checked_instead(path: str) -> str:
    """
    The path to check for an absent one: its folder if that is absent too, because several paths may share the folder.
    """
    folder = os.path.dirname(path)
    return path if not folder or os.path.lexists(folder) else folder


def uses(root: str) -> dict[str, float]:
    """
    The last use of each library that a record of this root names: seconds since the epoch, accurate to a day.
    """
    found: dict[str, float] = {}
    folder = os.path.join(root, "records")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        try:
            used = os.stat(path).st_mtime
            fields = _warm.load(path, stamp=False)
        except (OSError, ValueError, TypeError, EOFError):
            continue
        if fields and isinstance(fields[_LIBRARY], str):
            found[fields[_LIBRARY]] = max(used, found.get(fields[_LIBRARY], 0.0))
    return found
