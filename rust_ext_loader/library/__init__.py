"""
What a shared library says of itself: format, machine, symbols, and the libraries that it needs.

Invariant: nothing here runs an external tool.
"""

from __future__ import annotations
