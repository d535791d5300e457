"""
Print a benchmark's table: one promise per row, beside the measured value.

A *promise* is a stated limit of a cost, such as "at most 1.25x".

Invariant: only prints; it does not judge whether a promise is kept. Standard
library only.
"""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Row:
    """
    One promise and the measured value.
    """

    case: str
    promised: str
    measured: str


def show(rows: Sequence[Row]) -> None:
    """
    Print the rows in aligned columns.
    """
    case, promised = (max(len(getattr(row, column)) for row in rows) for column in ("case", "promised"))
    for row in rows:
        print(f"{row.case:<{case}}  {row.promised:<{promised}}  {row.measured}")
