"""
Decide which roots of the cache can be written, and which can be read.

Invariant: an unusable root gives a reason as text, never an error. Checking
whether a root can be read writes nothing.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from .. import _settings, _trust, _warm
from .._errors import CacheUnavailable, CacheWarning
from ..files import _staging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_CACHEDIR_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file marks a cache of rust-ext-loader; it may be removed at any time.\n"
)


def readable(cache_dir: str | None, environment: Mapping[str, str]) -> list[Path]:
    """
    Roots that entries may be read from. Not cached: a root may appear while a process waits for a lock.
    """
    return [root for root in map(Path, _settings.read_roots(cache_dir, environment)) if may_serve(root)]


def unusable(cache_dir: str | None, environment: Mapping[str, str]) -> list[str]:
    """
    For each existing root that cannot be read, the reason. An entry that was not found may be in one of them.
    """
    roots = map(Path, _settings.read_roots(cache_dir, environment))
    return [reason for root in roots if os.path.lexists(root) and (reason := reason_not_to_load(root))]


def prepare_first_writable(cache_dir: str | None, environment: Mapping[str, str]) -> Path | None:
    """
    The first root that can be written, without a warning if it is not the preferred one.
    """
    roots = map(Path, _warm.write_roots(cache_dir, environment))
    return next((root for root in roots if ready(root) is None), None)


def required_writable(cache_dir: str | None, environment: Mapping[str, str]) -> Path:
    """
    The first root that can be written, with a warning if it is not the preferred one.

    Raises `CacheUnavailable` if there is none.
    """
    tried: list[str] = []
    for root in map(Path, _warm.write_roots(cache_dir, environment)):
        reason = ready(root)
        if reason is None:
            if tried:
                warnings.warn(CacheWarning(f"{'; '.join(tried)}; using {root}"), stacklevel=2)
            return root
        tried.append(reason)
    raise CacheUnavailable(tuple(tried))


def ready(root: Path) -> str | None:
    """
    Prepare a root for writing; the reason if it cannot be used.
    """
    # Permissions are checked first, so that a read-only cache causes no failing write calls.
    above = next((folder for folder in (root, *root.parents) if os.path.exists(folder)), root)
    if above != root and not _writable(above):
        return f"{root} does not exist, and {above} is not writable"
    try:
        _staging.private_folder(root)
        if reason := _trust.problem(root):
            return reason
        if not root.is_dir():
            return f"{root} is not a folder"
        if _cannot_execute(root):
            return f"{root} is on a noexec mount"
        if not _writable(root):
            return f"{root} is not writable"
        tag = root / "CACHEDIR.TAG"
        if not tag.exists():
            _staging.write_atomically(tag, _CACHEDIR_TAG.encode())
        _staging.private_folder(root / "staging")
    except OSError as error:
        return f"{error.filename or root}: {error.strerror}"
    return None


def may_serve(root: Path) -> bool:
    """
    Whether the libraries of a root are trusted and can be loaded.
    """
    return reason_not_to_load(root) is None


def reason_not_to_load(root: Path) -> str | None:
    """
    Why no library is loaded from a root; `None` if it can be used.
    """
    try:
        if reason := _trust.problem(root):
            return reason
        if _cannot_execute(root):
            return f"{root} is on a noexec mount"
    except OSError as error:
        return f"{root}: {error.strerror}"
    for folder in (root, root / "artifacts"):
        if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
            return f"{folder} is not readable by this user"
    return None


def _writable(folder: Path) -> bool:
    # False on a read-only mount, even for root.
    return os.access(folder, os.W_OK | os.X_OK)


def _cannot_execute(root: Path) -> bool:
    # The dynamic linker cannot map libraries from a noexec mount, and build scripts would not run.
    flag = getattr(os, "ST_NOEXEC", 0)
    return bool(flag and os.statvfs(root).f_flag & flag)
