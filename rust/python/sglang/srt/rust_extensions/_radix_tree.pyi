"""
Prefix tree for KV caching; so far its page hashes.
"""

from collections.abc import Iterable

__all__ = ["get_hash_str"]

def get_hash_str(
    token_ids: Iterable[int],
    prior_hash: str | None,
    page_size: int,
    is_bigram: bool = False,
) -> list[str]:
    """
    Digests of the pages of *token_ids*, 64 lower-case hex digits each.

    A page holds *page_size* tokens, or bigrams of neighbouring tokens if *is_bigram*;
    a ragged last page counts. Each digest is SHA-256 over the digest before it and the
    page's tokens as little-endian uint32. *prior_hash* is the digest before the first
    page; "" or `None` starts a chain.

    Raises `ValueError` if *prior_hash* is not 64 hex digits, *page_size* is not
    positive, or a token is outside of uint32; the message has its index and value.
    """
