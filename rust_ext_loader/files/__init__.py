"""
Files on disk: write atomically, lock, find network file systems, notice changes.

Invariant: imports no other subpackage.
"""

from __future__ import annotations
