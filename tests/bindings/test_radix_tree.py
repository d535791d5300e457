"""
`_radix_tree.get_hash_str` computes page hashes by the wire format, which other programs implement too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang.srt.rust_extensions import _radix_tree

GOLDEN = [
    "34fb5c825de7ca4aea6e712f19d439c1da0c92c37b423936c5f618545ca4fa1f",
    "c57b445f90651b9a650e516ab2238c965b21af35608a31c303e6d9e407f2915c",
]
GOLDEN_BIGRAM = [
    "ede8ef26a097f0fd889f9f39f6f5af921370630b164c4a4fa28eb716b2df9269",
    "678c5307f2a02a2aaf8edbeb80ebac13663f70e14a4fc8d5d62b77e702841e4b",
]


def hashes_by_wire_format(tokens: Sequence[int], prior: str, page_size: int, *, is_bigram: bool) -> list[str]:
    """
    A direct implementation of the wire format.
    """
    atoms = list(pairwise(tokens)) if is_bigram else [(token,) for token in tokens]
    digest = bytes.fromhex(prior)
    hashes = []
    for start in range(0, len(atoms), page_size):
        page = chain.from_iterable(atoms[start : start + page_size])
        digest = hashlib.sha256(digest + b"".join(token.to_bytes(4, "little") for token in page)).digest()
        hashes.append(digest.hex())
    return hashes


def test_golden_vectors() -> None:
    """
    Other machines store these hashes, so they must stay the same in every version.
    """
    assert _radix_tree.get_hash_str([1, 2, 3, 4], "", 2) == GOLDEN
    assert _radix_tree.get_hash_str([1, 2, 3, 4, 5], "", 2, is_bigram=True) == GOLDEN_BIGRAM
    assert GOLDEN[1:] == _radix_tree.get_hash_str([3, 4], GOLDEN[0], 2)


@given(
    tokens=st.lists(st.integers(0, 2**32 - 1)),
    prior=st.sampled_from(["", *GOLDEN]),
    page_size=st.integers(1, 9),
    is_bigram=st.booleans(),
)
def test_hashes_follow_the_wire_format(tokens: list[int], prior: str, page_size: int, is_bigram: bool) -> None:
    """
    The tokens, prior hashes and page sizes are random.
    """
    assert hashes_by_wire_format(tokens, prior, page_size, is_bigram=is_bigram) == _radix_tree.get_hash_str(
        tokens, prior, page_size, is_bigram
    )


@pytest.mark.parametrize(
    "wrap",
    [
        list,
        tuple,
        iter,
        pytest.param(lambda tokens: np.array(tokens, np.int64), id="int64 array"),
        pytest.param(lambda tokens: np.array(tokens, np.uint32), id="uint32 array"),
    ],
)
def test_tokens_of_any_iterable_give_the_same_hashes(wrap: Callable[[list[int]], Iterable[int]]) -> None:
    """
    A prior hash of None starts a chain, like "".
    """
    assert _radix_tree.get_hash_str(wrap([1, 2, 3, 4]), None, 2) == GOLDEN


# Typed as Any, because the tests pass wrong types on purpose.
untyped: Any = _radix_tree


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(
            lambda: untyped.get_hash_str([1], "", 0), ValueError, "page_size must be positive, got 0", id="page size 0"
        ),
        pytest.param(
            lambda: untyped.get_hash_str([1], "", -1),
            ValueError,
            "page_size must be positive, got -1",
            id="negative page size",
        ),
        pytest.param(lambda: untyped.get_hash_str([1], "ab", 1), ValueError, "64 hex digits", id="short prior"),
        pytest.param(
            lambda: untyped.get_hash_str([1], "g" * 64, 1), ValueError, "64 hex digits", id="prior is not hex"
        ),
        pytest.param(
            lambda: untyped.get_hash_str([1, -1], "", 1),
            ValueError,
            "^token -1 at index 1 is outside of u32",
            id="negative token",
        ),
        pytest.param(
            lambda: untyped.get_hash_str([2**32], "", 1),
            ValueError,
            "^token 4294967296 at index 0 is outside",
            id="token of more than 32 bits",
        ),
        pytest.param(
            lambda: untyped.get_hash_str([1, 2**70], "", 1),
            ValueError,
            f"^token {2**70} at index 1 is outside",
            id="token of more than 64 bits",
        ),
        pytest.param(
            lambda: untyped.get_hash_str([-(2**70)], "", 1),
            ValueError,
            f"^token -{2**70} at index 0 is outside",
            id="token far below 0",
        ),
        pytest.param(
            lambda: untyped.get_hash_str([10**5000], "", 1),
            ValueError,
            "^token of thousands of digits at index 0",
            id="token of thousands of digits",
        ),
        pytest.param(lambda: untyped.get_hash_str(["1"], "", 1), TypeError, "str", id="text for a token"),
        pytest.param(lambda: untyped.get_hash_str(1, "", 1), TypeError, "iterable", id="int instead of tokens"),
        pytest.param(lambda: untyped.get_hash_str([1], b"", 1), TypeError, "bytes", id="bytes for the prior"),
    ],
)
def test_invalid_arguments_raise_the_documented_error(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    """
    Wrong types, ints out of range and invalid values raise different exceptions; the message names the fault.
    """
    with pytest.raises(error, match=message):
        call()
