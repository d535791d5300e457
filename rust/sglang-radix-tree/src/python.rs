//! The Python face of this crate: arguments in, errors out, interpreter released.
//!
//! The only file that names `pyo3`. It decides nothing about hashes.

use std::num::NonZeroUsize;

use pyo3::{
    exceptions::{PyOverflowError, PyValueError},
    prelude::*,
};
use sglang_page_hash::{PageHash, TokenOutOfRange, bigram_pages, pages};

/// Digests of the pages of `token_ids`, each chained to the one before it.
///
/// See `_radix_tree.pyi` for the contract.
#[pyfunction]
#[pyo3(signature = (token_ids, prior_hash, page_size, is_bigram = false))]
fn get_hash_str(
    py: Python<'_>,
    token_ids: &Bound<'_, PyAny>,
    prior_hash: Option<&str>,
    page_size: i64,
    is_bigram: bool,
) -> PyResult<Vec<String>> {
    let tokens = token_ids
        .try_iter()?
        .map(|token| token?.extract())
        .collect::<PyResult<Vec<i64>>>()?;
    let prior = prior(prior_hash)?;
    let page_size = usize::try_from(page_size)
        .ok()
        .and_then(NonZeroUsize::new)
        .ok_or_else(|| {
            PyValueError::new_err(format!("page_size must be positive, got {page_size}"))
        })?;
    let hash = if is_bigram { bigram_pages } else { pages };
    py.detach(|| {
        let hashes = hash(&tokens, prior, page_size)?;
        Ok(hashes.iter().map(PageHash::to_string).collect())
    })
    .map_err(|error: TokenOutOfRange| PyOverflowError::new_err(error.to_string()))
}

/// Both `None` and the empty text stand for the start of a chain.
fn prior(text: Option<&str>) -> PyResult<Option<PageHash>> {
    match text {
        None | Some("") => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|error| PyValueError::new_err(format!("prior_hash: {error}"))),
    }
}

/// Prefix tree for KV caching; so far its page hashes.
#[pymodule]
mod _radix_tree {
    #[pymodule_export]
    use super::get_hash_str;
}
