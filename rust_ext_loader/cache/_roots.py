"""
Tell which roots of the cache can be used: to store in, and to load from.

Invariant: a root that cannot be used is a reason in words, never an error.
Whether one can be loaded from is found out without writing to it.
"""

from __future__ import annotations

import os

from ..files import _staging, _trust

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

_CACHEDIR_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file marks a cache of rust-ext-loader; it may be removed at any time.\n"
)


def ready(root: Path) -> str | None:
    """
    Prepare a root for writing; the reason if it cannot be used.
    """
    # Permission is asked for before it is needed: nothing that only reads shall be seen to fail at writing.
    above = next((folder for folder in (root, *root.parents) if os.path.exists(folder)), root)
    if above != root and not _writable(above):
        return f"{root} does not exist, and {above} is not writable"
    try:
        _staging.private_folder(root)
        if reason := _trust.distrust(root):
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
    Whether what a root holds can be trusted, and could be loaded.
    """
    return closed(root) is None


def closed(root: Path) -> str | None:
    """
    Why nothing is taken from a root, or `None` if it may serve.
    """
    try:
        if reason := _trust.distrust(root):
            return reason
        if _cannot_execute(root):
            return f"{root} is on a noexec mount"
    except OSError as error:
        return f"{root}: {error.strerror}"
    for folder in (root, root / "artifacts"):
        if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
            return f"{folder} is closed to this user"
    return None


def _writable(folder: Path) -> bool:
    # On a read-only mount the answer is no, for root too.
    return os.access(folder, os.W_OK | os.X_OK)


def _cannot_execute(root: Path) -> bool:
    # The dynamic linker maps nothing from there, and build scripts would not run.
    flag = getattr(os, "ST_NOEXEC", 0)
    return bool(flag and os.statvfs(root).f_flag & flag)
