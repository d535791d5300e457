"""
Decide which paths must be watched to notice that a looked-up path changed.

An existing path is watched for changes, a missing path for its creation. For a
dangling link, the folder of the link and the link's target are watched, since
either can change the result.

Invariant: a path in `absent` does not exist in any form, so a later look that
does not follow links finds it absent too.
"""

from __future__ import annotations

import os

from .._model import Watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def watch(paths: Iterable[str]) -> Watched:
    """
    The paths whose stat shows whether any of these paths changed.
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
            # In a loop of links the resolved path is itself a link.
            if not os.path.lexists(target):
                absent.add(target)
    return Watched(frozenset(present), frozenset(absent))
