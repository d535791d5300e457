"""
Whether an extension module serves, or Pillow and NumPy must.

Invariant: only *loading* may fail quietly. What happens once an image is in hand is the
caller's to see.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: What an extension module that cannot be used raises: it is absent or cannot be built, its library cannot be opened,
#: its initialisation fails, or it is of a version that lacks a function.
LOAD_FAILURES = (ImportError, OSError, RuntimeError, AttributeError)

_logger = logging.getLogger(__name__)


def loaded_or_warn(load: Callable[[], T], user: str) -> T | None:
    """
    What *load* returns; if it cannot, nothing, and a warning that *user* goes on with Pillow.
    """
    try:
        return load()
    except LOAD_FAILURES as error:
        _logger.warning(
            "%s: no Rust extension, using Pillow and NumPy, which are slower: %s: %s", user, type(error).__name__, error
        )
        return None
