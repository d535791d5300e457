"""
An object store as a shared cache: pull instead of building, push what was built.

Invariant: no build depends on it. Without a valid signature nothing that it
sends is parsed.
"""

from __future__ import annotations
