"""
Changes to a checkout, for the rows of test tables, and a check that a load was a cache hit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from checkout import Checkout, Loaded


def hit(loaded: Loaded, value: str) -> None:
    assert (loaded.value, loaded.error) == (value, None)
    assert loaded.cargo == ()


def replace(name: str, old: str, new: str, older: float | None = None) -> Callable[[Checkout], None]:
    return lambda checkout: checkout.replace(name, old, new, older=older)


def write(name: str, text: str) -> Callable[[Checkout], object]:
    return lambda checkout: checkout.write(name, text)


def add_metadata(checkout: Checkout, line: str) -> None:
    checkout.replace("alpha/Cargo.toml", 'python-module = "fx.alpha"', f'python-module = "fx.alpha"\n{line}')
