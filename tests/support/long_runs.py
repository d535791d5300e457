"""
How much of a long suite runs: a sample by default, everything under `ci/test.py --long`.

Tests that use `amount` carry the marker `sampled`, by which `--long` finds them.
"""

from __future__ import annotations

import os

#: Whether the long suites run in full.
LONG = os.environ.get("SGLANG_TEST_LONG") == "1"


def amount(*, sample: int, full: int) -> int:
    """
    Return how many rounds, seconds or processes a test takes.
    """
    return full if LONG else sample
