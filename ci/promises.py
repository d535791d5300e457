"""
Hold one promise against what was measured: a row of a benchmark's table.

Invariant: shows, and judges nothing. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Row:
    """
    One promise and what was seen of it.
    """

    what: str
    promised: str
    measured: str


def show(rows: Sequence[Row]) -> None:
    """
    Print them one below the other.
    """
    width = max(len(row.what) for row in rows)
    for row in rows:
        print(f"{row.what:<{width}}  {row.promised:<22}  {row.measured}")
