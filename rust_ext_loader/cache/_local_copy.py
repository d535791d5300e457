"""
Give a library that lies on a network file system a place on this host.

Another host may replace or remove it there at any time, and whoever has it
mapped then dies of a bus error. So it is loaded from a copy, which is named by
its content and made once.

Invariant: a copy has the digest of what it was copied from, whenever it is
handed out. Where there is no place for one, the library is loaded from where it
lies.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .. import _settings
from ..files import _file_systems, _staging, _trust
from . import _roots, _store

#: Folder of the copies, under the root of last resort.
FOLDER = "local"


def nearest(library: Path) -> Path:
    """
    Where to load a stored library from: a copy on this host, if it lies on another.
    """
    root = Path(_settings.temporary_root())
    if not _file_systems.network(library) or _file_systems.network(root) or _roots.ready(root) is not None:
        return library
    try:
        digest = _store.digest_of_file(library)
        copy = root / FOLDER / digest[:20] / library.name
        if not _is_whole(copy, digest):
            _make(library, copy, root)
        return copy if _is_whole(copy, digest) else library
    except OSError:
        # Full, or gone meanwhile: the load itself will tell.
        return library


def _is_whole(copy: Path, digest: str) -> bool:
    if any(_trust.distrust(path) for path in (copy, copy.parent, copy.parent.parent)):
        return False
    return _store.digest_of_file(copy) == digest


def _make(library: Path, copy: Path, root: Path) -> None:
    if os.path.lexists(copy.parent):
        _store.quarantine_library(root, copy)
    with _staging.staged_folder(root) as staged:
        _staging.copy_into(library, staged, library.name)
        _staging.write_atomically(staged / _store.STAMP, b"")
        # Another process may have been faster; its copy is as good.
        with contextlib.suppress(OSError):
            _staging.publish_folder(staged, copy.parent)


def set_aside(library: Path) -> bool:
    """
    Whether a library that was refused is a copy of ours, and out of the way now.
    """
    root = Path(_settings.temporary_root())
    if library.parent.parent != root / FOLDER:
        return False
    _store.quarantine_library(root, library)
    return not os.path.lexists(library)
