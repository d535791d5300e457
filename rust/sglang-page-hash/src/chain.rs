//! The chain: one digest per page, over the previous digest and the page's tokens.
//!
//! A page consists of single tokens, or of *bigrams* of two adjacent tokens, as speculative decoding
//! uses for its keys. n + 1 tokens make n bigrams, and both tokens of each bigram are hashed. An
//! incomplete last page is hashed like the others.
//!
//! Invariant: a digest depends only on the seed and on the tokens up to the end of its page.

use std::num::NonZeroUsize;

use sha2::{Digest, Sha256};

use crate::PageHash;

/// A token that does not fit into the hashed format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} at index {index} is outside of u32 and cannot be hashed")]
pub struct TokenOutOfRange {
    /// Its index in the tokens.
    pub index: usize,
    /// Its value.
    pub token: i64,
}

/// Digests of the pages of `tokens`. The chain continues from `prior`.
///
/// # Errors
///
/// Names the first token that is negative or above `u32::MAX`.
pub fn pages(
    tokens: &[i64],
    prior: Option<PageHash>,
    page_size: NonZeroUsize,
) -> Result<Vec<PageHash>, TokenOutOfRange> {
    let tokens = to_u32(tokens)?;
    Ok(chain(
        prior,
        tokens.chunks(page_size.get()),
        |hasher, page| {
            for token in page {
                hasher.update(token.to_le_bytes());
            }
        },
    ))
}

/// Digests of the pages of the bigrams of `tokens`. The chain continues from `prior`.
///
/// # Errors
///
/// Names the first token that is negative or above `u32::MAX`, even if no bigram contains it.
pub fn bigram_pages(
    tokens: &[i64],
    prior: Option<PageHash>,
    page_size: NonZeroUsize,
) -> Result<Vec<PageHash>, TokenOutOfRange> {
    let tokens = to_u32(tokens)?;
    let bigrams: Vec<[u32; 2]> = tokens.windows(2).map(|two| [two[0], two[1]]).collect();
    Ok(chain(
        prior,
        bigrams.chunks(page_size.get()),
        |hasher, page| {
            for token in page.as_flattened() {
                hasher.update(token.to_le_bytes());
            }
        },
    ))
}

fn to_u32(tokens: &[i64]) -> Result<Vec<u32>, TokenOutOfRange> {
    tokens
        .iter()
        .enumerate()
        .map(|(index, &token)| u32::try_from(token).map_err(|_| TokenOutOfRange { index, token }))
        .collect()
}

fn chain<'a, T: 'a>(
    prior: Option<PageHash>,
    pages: impl Iterator<Item = &'a [T]>,
    feed: impl Fn(&mut Sha256, &[T]),
) -> Vec<PageHash> {
    pages
        .scan(prior, |last, page| {
            let mut hasher = Sha256::new();
            if let Some(last) = last {
                hasher.update(last.as_bytes());
            }
            feed(&mut hasher, page);
            let hash = PageHash::from(<[u8; 32]>::from(hasher.finalize()));
            *last = Some(hash);
            Some(hash)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{NonZeroUsize, PageHash, TokenOutOfRange, bigram_pages, pages};
    use crate::{cache_salt_seed, namespace_seed};

    const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

    fn texts(hashes: &[PageHash]) -> Vec<String> {
        hashes.iter().map(PageHash::to_string).collect()
    }

    fn ids(hashes: &[PageHash]) -> Vec<i64> {
        hashes.iter().map(PageHash::event_id).collect()
    }

    #[test]
    fn pages_of_single_tokens_have_the_pinned_digests() {
        let hashes = pages(&[1, 2, 3, 4], None, TWO).unwrap();
        let expected = [
            "34fb5c825de7ca4aea6e712f19d439c1da0c92c37b423936c5f618545ca4fa1f",
            "c57b445f90651b9a650e516ab2238c965b21af35608a31c303e6d9e407f2915c",
        ];
        assert_eq!(expected[..], texts(&hashes));
        assert_eq!(
            [3_817_746_824_117_602_890, -4_216_701_448_867_210_342][..],
            ids(&hashes)
        );
    }

    #[test]
    fn pages_of_bigrams_have_the_pinned_digests() {
        let hashes = bigram_pages(&[1, 2, 3, 4, 5], None, TWO).unwrap();
        let expected = [
            "ede8ef26a097f0fd889f9f39f6f5af921370630b164c4a4fa28eb716b2df9269",
            "678c5307f2a02a2aaf8edbeb80ebac13663f70e14a4fc8d5d62b77e702841e4b",
        ];
        assert_eq!(expected[..], texts(&hashes));
        assert_eq!(
            [-1_303_529_142_941_650_691, 7_461_429_976_246_528_554][..],
            ids(&hashes)
        );
    }

    #[test]
    fn pages_after_a_seed_have_the_pinned_digests() {
        let salted = pages(&[1, 2], Some(cache_salt_seed("tenant-a")), TWO).unwrap();
        assert_eq!([31_502_315_585_564_397][..], ids(&salted));

        let named = pages(&[1, 2], namespace_seed(Some("lora-7"), None), TWO).unwrap();
        let expected = ["58a30ad362cc16da6992d072afff8d5a30aaffec7bc05c3a0c72d770b7771d89"];
        assert_eq!(expected[..], texts(&named));
    }

    /// The digest of the last page before the cut is enough to continue.
    #[test]
    fn a_chain_can_be_resumed_after_any_page() {
        let tokens = [7, 0, 1, 2, 3, i64::from(u32::MAX), 5];
        let whole = pages(&tokens, None, TWO).unwrap();
        assert_eq!(4, whole.len(), "the incomplete last page counts");
        for cut in 1..whole.len() {
            let rest = pages(&tokens[2 * cut..], Some(whole[cut - 1]), TWO).unwrap();
            assert_eq!(whole[cut..], rest, "cut at page {cut}");
        }
    }

    #[test]
    fn no_tokens_have_no_digests() {
        assert!(pages(&[], None, TWO).unwrap().is_empty());
        assert!(bigram_pages(&[], None, TWO).unwrap().is_empty());
        assert!(bigram_pages(&[1], None, TWO).unwrap().is_empty());
    }

    #[test]
    fn tokens_outside_of_u32_are_refused() {
        for token in [-1, i64::MIN, 1 << 32, i64::MAX] {
            let expected = TokenOutOfRange { index: 1, token };
            assert_eq!(Err(expected), pages(&[1, token, -7], None, TWO));
            assert_eq!(Err(expected), bigram_pages(&[1, token, -7], None, TWO));
        }
        let error = TokenOutOfRange {
            index: 1,
            token: -3,
        };
        assert_eq!(
            "token -3 at index 1 is outside of u32 and cannot be hashed",
            error.to_string()
        );
    }
}
