"""
A path at which nothing exists.

It is below this folder, so that no other program has a reason to create it.
"""

from __future__ import annotations

from pathlib import Path

ABSENT = str(Path(__file__).resolve().parent / "absent")

assert not Path(ABSENT).exists(), f"remove {ABSENT}: tests need a path at which nothing exists"
