"""
How this package comes by its extension module.

A checkout builds it on demand, through the toolkit; an installed wheel has it, and need
not have the toolkit.

Invariant: an error of the toolkit is not hidden by a plain import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

MODULE = "sglang.srt.rust_extensions._server"


def load_extension(module: str = MODULE) -> ModuleType:
    """
    The extension module, built first if it must be and may be.

    Raises `ImportError` if it cannot be had; its text says why.
    """
    try:
        from rust_ext_loader import load_rust_extension
    except ModuleNotFoundError as error:
        if error.name != "rust_ext_loader":
            raise
        return importlib.import_module(module)
    return load_rust_extension(module)
