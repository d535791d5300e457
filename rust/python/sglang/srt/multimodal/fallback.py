"""
Falls back to Pillow and NumPy if an extension module cannot be loaded.

Invariant: only a failed load causes a fallback. Errors while an image is processed are raised.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: The exceptions of a failed load: the module is missing or cannot be built, its library cannot be opened, its
#: initialisation fails, or its version lacks a function.
LOAD_FAILURES = (ImportError, OSError, RuntimeError, AttributeError)

_logger = logging.getLogger(__name__)


def loaded_or_warn(load: Callable[[], T], user: str) -> T | None:
    """
    The result of *load*. If it fails to load, logs a warning that *user* falls back to Pillow, and returns None.
    """
    try:
        return load()
    except LOAD_FAILURES as error:
        _logger.warning(
            "%s: the Rust extension cannot be loaded (%s: %s); using Pillow and NumPy, which are slower",
            user,
            type(error).__name__,
            error,
        )
        return None
