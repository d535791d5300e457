"""
The command line, `rust-ext`.

One file per command. `_main` parses arguments and maps results to exit codes.
Results go to stdout, messages to stderr.
"""

from __future__ import annotations

from ._main import main

__all__ = ("main",)
