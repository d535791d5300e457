"""
Entries on disk: look up, publish, quarantine, collect. Bundled modules are looked up here too.

Invariant: an entry appears whole, by rename, and is never changed afterwards.
"""

from __future__ import annotations
