"""
Decide whether a file or folder may be run as code, by its owner and permissions.

Everything that is loaded from a cache is code. A file that another user owns or
can write is therefore a miss, never an error.

Invariant: imports no other module of this package, because it is on the warm path.
"""

import os
import stat


def is_shared() -> bool:
    """
    Whether this process trusts the caches of its group: `RUST_EXT_SHARED`, read from its own environment only.
    """
    return os.environ.get("RUST_EXT_SHARED", "") not in ("", "0", "false", "no")


def status_problem(status: "os.stat_result") -> "str | None":
    """
    Why a file with this status may not be run as code; `None` if it may.

    The file must belong to this user or to root, and no other user may write it. With `RUST_EXT_SHARED` it may also
    belong to one of this process's groups, and that group may write it. A symbolic link has mode 0777, so it is never
    trusted.
    """
    if not hasattr(os, "geteuid"):
        return None
    if is_shared() and not status.st_mode & 0o002 and status.st_gid in (os.getegid(), *os.getgroups()):
        return None
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {status.st_uid}"
    return f"is writable by others (mode {status.st_mode & 0o7777:04o})" if status.st_mode & 0o022 else None


def problem(path: "str | os.PathLike[str]") -> "str | None":
    """
    Why a file or folder may not be loaded from, or `None` if it may.

    A symbolic link is refused: another user could have planted it.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        return f"{os.fspath(path)}: {error.strerror}"
    if stat.S_ISLNK(status.st_mode):
        return f"{os.fspath(path)} is a symbolic link"
    reason = status_problem(status)
    return f"{os.fspath(path)} {reason}" if reason else None
