"""
Decide which stats stand for a path that was asked about.

What is there is watched itself, and what is not, for appearing. A link that
leads nowhere is neither: what would change its meaning is its target, or
another link in its place.

Invariant: what is called absent does not exist in any form, so that whoever
looks again without following links finds it absent too.
"""

from __future__ import annotations

import os

from .._model import Watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def watch(paths: Iterable[str]) -> Watched:
    """
    What to look at again to know that these paths are as they are now.
    """
    present: set[str] = set()
    absent: set[str] = set()
    for path in paths:
        if os.path.exists(path):
            present.add(path)
        elif not os.path.lexists(path):
            absent.add(path)
        else:
            present.add(os.path.dirname(path))
            target = os.path.realpath(path)
            # A circle of links ends in one of them.
            if not os.path.lexists(target):
                absent.add(target)
    return Watched(frozenset(present), frozenset(absent))
