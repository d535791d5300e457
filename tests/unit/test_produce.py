"""
When a process began, by which a forced build is known for its own.
"""

from __future__ import annotations

import builtins
import time

import pytest

from rust_ext_loader import _produce


def test_a_process_began_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where the kernel does not tell, the answer is still a time in the past and the same each time: what is built later counts.
    """

    def refused(*_: object) -> None:
        raise FileNotFoundError

    before = time.time()
    monkeypatch.setattr(builtins, "open", refused)
    first, second = _produce._process_began(), _produce._process_began()

    assert first == second < before
