"""
Fixtures of the integration tests: real cargo, real interpreters, a cache of their own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkout import Checkout, check_out


@pytest.fixture
def plain(tmp_path: Path) -> Checkout:
    """
    A fresh checkout of `tests/crates/plain` with an empty cache.
    """
    return check_out("plain", tmp_path)
