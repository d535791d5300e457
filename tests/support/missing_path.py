"""
A path at which nothing exists.

The path is in this folder, where no other program has a reason to create a file.
"""

from __future__ import annotations

from pathlib import Path

ABSENT = str(Path(__file__).resolve().parent / "absent")

assert not Path(ABSENT).exists(), f"remove {ABSENT}: tests need a path at which nothing exists"
