"""
Prefix tree for KV caching (so far only its page hashes).
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
    Return the digests of the pages of *token_ids*, 64 lower-case hex digits each.

    A page holds *page_size* tokens, or bigrams of adjacent tokens if *is_bigram*. The
    last page may be shorter. Each digest is SHA-256 over the previous digest and the
    page's tokens as little-endian uint32. *prior_hash* is the digest before the first
    page; "" or `None` starts a new chain.

    Raises `ValueError` if *prior_hash* is not 64 hex digits, if *page_size* is not
    positive, or if a token does not fit into uint32. The message names its index and value.
    """
