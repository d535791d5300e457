"""
Read a TOML file, and name the line that is wrong.

The only module that chooses the parser: `tomllib` of the standard library since
Python 3.11, `tomli` before.

Invariant: equal bytes give the same dictionary, which is shared and never
changed. Every problem of a file becomes a `ManifestError` with its path.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Any

from .._errors import ManifestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    # mypy checks this branch as Python 3.10, but runs on a later Python, where `tomli` is not installed.
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]


def load(path: Path) -> dict[str, Any]:
    """
    The parsed file. Callers share the result and must not change it.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ManifestError(str(path), f"cannot be read: {error.strerror or error}") from error
    try:
        return _parse(data)
    except UnicodeDecodeError as error:
        raise ManifestError(
            str(path), f"is not UTF-8: {error.reason}", data.count(b"\n", 0, error.start) + 1
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(str(path), *_reason_and_line(str(error), data)) from error
    except RecursionError as error:
        raise ManifestError(str(path), "is nested too deeply") from error


# Keyed by content, not by timestamp, so a cached result cannot be stale. Each extension reads the same lockfile.
@lru_cache(maxsize=256)
def _parse(data: bytes) -> dict[str, Any]:
    parsed: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    return parsed


def _reason_and_line(message: str, data: bytes) -> tuple[str, int | None]:
    match = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    if match is None:
        return message, None
    line = int(match[1]) if match[1] else data.rstrip().count(b"\n") + 1
    return message[: match.start()], line


def line_of(path: Path, table: str, key: str) -> int | None:
    """
    Line that sets a key of a `[table]`; `None` if it is written in an unusual way.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    inside = False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("["):
            inside = text.partition("]")[0].strip("[ ") == table
        elif inside and re.match(rf"[\"']?{re.escape(key)}[\"']?\s*[.=]", text):
            return number
    return None
