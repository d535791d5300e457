//! Prefix tree for KV caching; so far its page hashes.
//!
//! Feature `python` adds the extension module `_radix_tree`. Without it this crate
//! re-exports the hashes that the tree names its pages by.
//!
//! Invariant: without feature `python` it does not know that Python exists.

#[cfg(feature = "python")]
mod python;

pub use sglang_page_hash as page_hash;
