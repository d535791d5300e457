"""
Decide by `stat` alone whether a file is unchanged since it was read.

A *signature* is size, mtime, inode and ctime. ctime is compared as well as
mtime: tools can set mtime, but not ctime. A signature is *settled* when both
times are older than `UNSETTLED_NS` before reading began. A younger time could
hide a later edit in the same clock tick.
"""

from __future__ import annotations

import time

from . import _warm

#: Times that are younger than this before reading began are not settled.
UNSETTLED_NS = 2_000_000_000


def signature(path: str) -> _warm.Signature | None:
    """
    The signature of a file; `None` if it cannot be read.
    """
    try:
        return _warm.signatures([path])[0]
    except OSError:
        return None


def is_settled(found: _warm.Signature, started_ns: int) -> bool:
    """
    Whether every edit after `started_ns` (wall clock, ns) changes the signature.
    """
    _, mtime, _, ctime = found
    return max(mtime, ctime) < started_ns - UNSETTLED_NS


def clocks() -> tuple[int, int]:
    """
    The wall clock and the monotonic clock, in nanoseconds.
    """
    return time.time_ns(), time.monotonic_ns()


def started_at(began: tuple[int, int], now: tuple[int, int]) -> int:
    """
    The wall clock at which reading began, in nanoseconds.

    If the clock was set back after reading began, later edits have earlier times, but must still count as later. So the
    start is computed from both clocks, and the earlier result counts.
    """
    began_wall, began_monotonic = began
    now_wall, now_monotonic = now
    return min(began_wall, now_wall - (now_monotonic - began_monotonic))
