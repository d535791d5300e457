"""
Decide whether a relative path matches a glob, in the same way on every Python.

`*` and `?` match within one folder, `**` crosses folders, `[...]` is a set. The
standard library is not used: its versions treat hidden files and `**` differently.

Invariant: pure. Paths have forward slashes and are compared case-sensitively.
"""

from __future__ import annotations

import re
from functools import lru_cache

_MAGIC = re.compile(r"[*?\[]")


def is_glob(pattern: str) -> bool:
    """
    Whether the pattern contains a wildcard.
    """
    return _MAGIC.search(pattern) is not None


def fixed_part(pattern: str) -> str:
    """
    The leading folders that contain no wildcard.
    """
    parts = pattern.split("/")
    fixed = next(index for index, part in enumerate(parts) if is_glob(part))
    return "/".join(parts[:fixed])


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """
    The glob as a regular expression for `fullmatch`.
    """
    text = ""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            text += ".+" if last else "(?:[^/]+/)*"
        else:
            text += _segment(part) + ("" if last else "/")
    return re.compile(text, re.DOTALL)


def _segment(part: str) -> str:
    pieces = re.split(r"(\*+|\?|\[!?\]?[^\]]*\])", part)
    return "".join(_piece(piece) for piece in pieces)


def _piece(piece: str) -> str:
    if piece.startswith("*"):
        return "[^/]*"
    if piece == "?":
        return "[^/]"
    if len(piece) > 2 and piece[0] == "[" and piece[-1] == "]":
        inside = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
        return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    return re.escape(piece)


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """
    Whether any of the globs matches the whole path.
    """
    return any(compiled(pattern).fullmatch(path) for pattern in patterns)


def covers(folder: str, patterns: tuple[str, ...]) -> bool:
    """
    Whether a glob matches everything below a folder, so that the folder need not be read.
    """
    return any(pattern.endswith("/**") and compiled(pattern[:-3]).fullmatch(folder) for pattern in patterns)
