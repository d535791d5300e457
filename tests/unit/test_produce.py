"""
The start time of this process, which decides whether a forced build accepts an existing one.
"""

from __future__ import annotations

import builtins
import time

import pytest

from rust_ext_loader import _produce


def test_the_start_of_the_process_is_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without `/proc` the answer is still a constant time in the past, so that later builds are accepted.
    """

    def refused(*_: object) -> None:
        raise FileNotFoundError

    before = time.time()
    monkeypatch.setattr(builtins, "open", refused)
    first, second = _produce._process_began(), _produce._process_began()

    assert first == second < before
