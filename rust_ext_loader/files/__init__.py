"""
Files on disk: write atomically, lock, decide who may write them, notice changes.

Invariant: imports no other wing.
"""

from __future__ import annotations
