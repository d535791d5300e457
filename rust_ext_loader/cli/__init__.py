"""
The command line, `rust-ext`.

One file per command; `_main` parses and maps outcomes to exit codes. What was
asked for goes to stdout, talk goes to stderr.
"""

from __future__ import annotations

from ._main import main

__all__ = ("main",)
