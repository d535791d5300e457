"""
Copy a library from a network file system to this host before it is loaded.

Another host may replace or remove the original at any time, and a process that has
it mapped then dies of SIGBUS. The copy is named by its content and made once.

Invariant: a copy has the digest of its original whenever its path is returned. If
no copy can be made, the library is loaded from its original path.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .. import _trust, _warm
from ..facts._fingerprint import SHORT
from ..files import _digest, _file_systems, _staging
from . import _roots, _store

#: Folder of the copies, under the temporary root.
FOLDER = "local"


def nearest(library: Path) -> Path:
    """
    The path to load a stored library from: a local copy if it is on a network file system.
    """
    root = Path(_warm.temporary_root())
    if not _file_systems.network(library) or _file_systems.network(root) or _roots.ready(root) is not None:
        return library
    try:
        digest = _digest.of_file(library)
        copy = root / FOLDER / digest[:SHORT] / library.name
        if not _is_whole(copy, digest):
            _make(library, copy, root)
        return copy if _is_whole(copy, digest) else library
    except OSError:
        # A full disk, or a library that was removed: loading the original path reports it.
        return library


def _is_whole(copy: Path, digest: str) -> bool:
    if any(_trust.problem(path) for path in (copy, copy.parent, copy.parent.parent)):
        return False
    return _digest.of_file(copy) == digest


def _make(library: Path, copy: Path, root: Path) -> None:
    if os.path.lexists(copy.parent):
        _store.quarantine_library(root, copy)
    with _staging.staged_folder(root) as staged:
        _staging.copy_into(library, staged, library.name)
        _staging.write_atomically(staged / _store.STAMP, b"")
        # Another process may have published the same copy first.
        with contextlib.suppress(OSError):
            _staging.publish_folder(staged, copy.parent)


def quarantine(library: Path) -> bool:
    """
    Quarantine a library that failed to load, if it is a local copy. Returns whether a local copy was removed.
    """
    root = Path(_warm.temporary_root())
    if library.parent.parent != root / FOLDER:
        return False
    _store.quarantine_library(root, library)
    return not os.path.lexists(library)
