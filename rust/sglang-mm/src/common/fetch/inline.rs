//! Inline sources: `data:` URLs and bare base64.
//!
//! The text after the first comma of a `data:` URL is always decoded as base64. Its media type and
//! its parameters are ignored, because the format is detected from the bytes.
//!
//! Invariant: bytes are charged to the budget before they are allocated.

use super::{ByteBudget, FetchError, budget::Claim};
use crate::common::base64::{base64_decode, max_decoded_len};

/// Decodes a `data:` URL.
pub(super) fn data_url(source: &str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
    let (_, encoded) = source.split_once(',').ok_or(FetchError::MalformedDataUrl)?;
    decode(encoded, "data: URL", budget)
}

/// Decodes a source that is neither a URL nor an absolute path.
pub(super) fn bare(source: &str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
    decode(source, "inline base64", budget)
}

fn decode(encoded: &str, name: &'static str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
    let mut claim = Claim::new(budget);
    if !claim.grow(max_decoded_len(encoded) as u64) {
        return Err(FetchError::OverBudget {
            name: name.to_owned(),
        });
    }
    let bytes = base64_decode(encoded).map_err(|source| FetchError::Base64 { name, source })?;
    claim.keep(bytes.len() as u64);
    Ok(bytes)
}
