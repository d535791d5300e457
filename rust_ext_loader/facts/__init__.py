"""
Gather the facts that make up a key: inputs, dependencies, environment, ABI, CPU and toolchain.

Each module gathers facts from one source. `_snapshot` joins them, and
`_fingerprint` computes keys from them.

Invariant: no timestamp and no absolute path is ever a fact.
"""

from __future__ import annotations
