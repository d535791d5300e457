"""
Share built entries through an object store: pull instead of building, push what was built.

Invariant: no build depends on the remote. Data from it is parsed only after its
signature was verified.
"""

from __future__ import annotations
