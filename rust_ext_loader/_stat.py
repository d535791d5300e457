"""
Decide by `stat` alone whether a file is unchanged since it was read.

A *signature* is size, mtime, inode and ctime. ctime is compared as well as
mtime: tools can set mtime, but not ctime. A signature is *settled* when both
times are older than `UNSETTLED_NS` before reading began. A younger time could
hide a later edit in the same clock tick.

Invariant: imports no other module of this package, because it is on the warm path.
"""

import os
import time

#: Times that are younger than this before reading began are not settled.
UNSETTLED_NS = 2_000_000_000

#: Seconds between two updates of the timestamp that says when a library was last used.
USE_STAMP_SECONDS = 86400.0

#: Size, mtime in ns, inode, ctime in ns.
Signature = tuple[int, int, int, int]


def signature(path: str) -> "Signature | None":
    """
    The signature of a file; `None` if it cannot be read.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns


def is_settled(found: "Signature", started_ns: int) -> bool:
    """
    Whether every edit after `started_ns` (wall clock, ns) changes the signature.
    """
    _, mtime, _, ctime = found
    return max(mtime, ctime) < started_ns - UNSETTLED_NS


def clocks() -> "tuple[int, int]":
    """
    The wall clock and the monotonic clock, in nanoseconds.
    """
    return time.time_ns(), time.monotonic_ns()


def started_at(began: "tuple[int, int]", now: "tuple[int, int]") -> int:
    """
    The wall clock at which reading began, in nanoseconds.

    If the clock was set back since, later edits have earlier times, but must still count as later than the read. So the
    start is computed from both clocks, and the earlier result counts.
    """
    began_wall, began_monotonic = began
    now_wall, now_monotonic = now
    return min(began_wall, now_wall - (now_monotonic - began_monotonic))
