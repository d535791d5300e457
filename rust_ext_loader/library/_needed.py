"""
Tell which libraries a module needs that are nowhere to be found.

The dynamic linker names the first one alone, in words that read as if the
module itself were missing. Here everything that the module names is opened as
the linker would open it, so that all that is missing can be said at once.

Invariant: asked only after the linker refused the module, and answers `()`
whenever it is not sure that something is missing.
"""

from __future__ import annotations

import os
import re

from . import _library_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

#: What glibc, musl, macOS and Windows say of a library that is not there.
_ABSENT = re.compile(
    r"^(?P<glibc>[^:]+): cannot open shared object file: No such file"
    r"|^Error loading shared library (?P<musl>[^:]+): No such file"
    r"|Library not loaded: (?P<macos>\S+)"
    r"|Could not find module '(?P<windows>[^']+)'"
)


def missing(library: Path) -> tuple[str, ...]:
    """
    Names of the libraries that a module needs, itself or by way of another, and that are not found.
    """
    try:
        described = _library_file.inspect(library)
    except (OSError, ValueError):
        return ()
    folders = [
        folder.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", os.fspath(library.parent))
        for folder in described.search
    ]
    lacking = (_lacking(_found_in(folders, name) or name) for name in described.needed)
    return tuple(dict.fromkeys(name for name in lacking if name))


def _found_in(folders: list[str], name: str) -> str | None:
    return next((path for folder in folders if os.path.exists(path := os.path.join(folder, name))), None)


def _lacking(name: str) -> str | None:
    """
    What cannot be found of one library: itself, or one that it needs in turn.
    """
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError as error:
        absent = _ABSENT.search(str(error))
        return absent[absent.lastgroup or 0] if absent else None
    return None
