"""
Run cargo, find out what it read, and return a library that matches the sources.

Invariant: a library is returned only if its sources did not change during the
build. No compiler outlives the Python process that started it.
"""

from __future__ import annotations
