"""
Find the extensions that a source tree declares, and read their settings.

Invariant: nothing here runs cargo. A manifest that cannot be read affects only
its own crate.
"""

from __future__ import annotations
