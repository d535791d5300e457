"""
What a key is made of: inputs, dependencies, environment, ABI, CPU and toolchain.

Each module gathers facts from one source; `_snapshot` joins them and
`_fingerprint` turns them into keys.

Invariant: no timestamp and no absolute path is ever a fact.
"""

from __future__ import annotations
