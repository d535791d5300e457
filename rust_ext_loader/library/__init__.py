"""
Read what a shared library contains: format, machine, symbols, and the libraries that it needs.

Invariant: nothing here runs an external tool.
"""

from __future__ import annotations
