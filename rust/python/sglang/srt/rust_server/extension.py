"""
Loads the extension module of this package.

In a checkout the toolkit builds it on demand. An installed wheel contains it and does not
need the toolkit.

Invariant: an error of the toolkit is never hidden by falling back to a plain import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

MODULE = "sglang.srt.rust_extensions._server"


def load_extension(module: str = MODULE) -> ModuleType:
    """
    Return the extension module. Builds it first if necessary and allowed.

    Raises `ImportError` with the reason if it cannot be loaded.
    """
    try:
        from rust_ext_loader import load_rust_extension
    except ModuleNotFoundError as error:
        if error.name != "rust_ext_loader":
            raise
        return importlib.import_module(module)
    return load_rust_extension(module)
