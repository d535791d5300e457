"""
Which extensions a tree declares, and with which settings: manifests, patterns, TOML, project settings.

Invariant: nothing here runs cargo. A manifest that cannot be read harms its own
crate only.
"""

from __future__ import annotations
