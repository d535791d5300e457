//! The Python module: converts arguments and errors, and releases the GIL while hashing.
//!
//! Invariant: only this file uses `pyo3`, and it implements no hashing rules.

use std::num::NonZeroUsize;

use pyo3::{
    exceptions::{PyOverflowError, PyValueError},
    prelude::*,
};
use sglang_page_hash::{PageHash, TokenOutOfRange, bigram_pages, pages};

/// The chained digests of the pages of `token_ids`.
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
        .enumerate()
        .map(|(index, token)| extract_token(index, &token?))
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
    .map_err(|error: TokenOutOfRange| PyValueError::new_err(error.to_string()))
}

/// Converts a token. A token over 64 bits gives the message of [`TokenOutOfRange`], which cannot
/// hold such a number.
fn extract_token(index: usize, token: &Bound<'_, PyAny>) -> PyResult<i64> {
    token.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(token.py()) {
            return error;
        }
        // Python refuses to convert an int of thousands of digits to text.
        let value = token.str().map_or_else(
            |_| "of thousands of digits".to_owned(),
            |text| text.to_string(),
        );
        PyValueError::new_err(format!(
            "token {value} at index {index} is outside of u32 and cannot be hashed"
        ))
    })
}

/// The previous digest; `None` and the empty text both mean the start of a chain.
fn prior(text: Option<&str>) -> PyResult<Option<PageHash>> {
    match text {
        None | Some("") => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|error| PyValueError::new_err(format!("prior_hash: {error}"))),
    }
}

/// Prefix tree for KV caching (so far only its page hashes).
#[pymodule]
mod _radix_tree {
    #[pymodule_export]
    use super::get_hash_str;
}
