"""
Find the libraries that a module needs and that the dynamic linker cannot find.

The dynamic linker names only the first missing library, in a message that sounds
as if the module itself were missing. `missing` opens every library that the module names,
as the linker would, so that one error can list all of them.

Invariant: called only after the linker has refused the module. Returns `()`
unless a library is certainly missing.
"""

from __future__ import annotations

import os
import re

from . import _library_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

#: The messages of glibc, musl, macOS and Windows about a missing library.
_ABSENT = re.compile(
    r"^(?P<glibc>[^:]+): cannot open shared object file: No such file"
    r"|^Error loading shared library (?P<musl>[^:]+): No such file"
    r"|Library not loaded: (?P<macos>\S+)"
    r"|Could not find module '(?P<windows>[^']+)'"
)


def missing(library: Path) -> tuple[str, ...]:
    """
    Names of the libraries that the module needs, directly or indirectly, and that are not found.
    """
    try:
        described = _library_file.inspect(library)
    except (OSError, ValueError):
        return ()
    folders = [
        folder.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", os.fspath(library.parent))
        for folder in described.search
    ]
    names = (_missing_name(_found_in(folders, name) or name) for name in described.needed)
    return tuple(dict.fromkeys(name for name in names if name))


def _found_in(folders: list[str], name: str) -> str | None:
    return next((path for folder in folders if os.path.exists(path := os.path.join(folder, name))), None)


def _missing_name(name: str) -> str | None:
    """
    The name of the missing library: this one, or one that it needs; `None` if it can be opened.
    """
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError as error:
        absent = _ABSENT.search(str(error))
        return absent[absent.lastgroup or 0] if absent else None
    return None
