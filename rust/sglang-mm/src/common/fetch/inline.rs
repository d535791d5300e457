//! Sources that are their own bytes: `data:` URLs and bare base64.
//!
//! Whatever a `data:` URL says of itself, what is behind its first comma is base64; the
//! type is found in the bytes.
//!
//! Invariant: room is claimed before it is used.

use super::{ByteBudget, FetchError, budget::Claim};
use crate::common::base64::{base64_decode, max_decoded_len};

/// The bytes of a `data:` URL.
pub(super) fn data_url(source: &str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
    let (_, encoded) = source.split_once(',').ok_or(FetchError::MalformedDataUrl)?;
    decode(encoded, "data: URL", budget)
}

/// The bytes of what is neither a URL nor an absolute path.
pub(super) fn bare(source: &str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
    decode(source, "inline base64", budget)
}

fn decode(encoded: &str, what: &'static str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
    let mut claim = Claim::new(budget);
    if !claim.grow(max_decoded_len(encoded) as u64) {
        return Err(FetchError::OverBudget {
            what: what.to_owned(),
        });
    }
    let bytes = base64_decode(encoded).map_err(|source| FetchError::Base64 { what, source })?;
    claim.keep(bytes.len() as u64);
    Ok(bytes)
}
