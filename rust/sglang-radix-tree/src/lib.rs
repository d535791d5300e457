//! Prefix tree for KV caching (so far only its page hashes).
//!
//! Without features this crate re-exports the page hashes. Feature `python` adds the extension module
//! `_radix_tree`.
//!
//! Invariant: without feature `python` the crate does not depend on Python.

#[cfg(feature = "python")]
mod python;

pub use sglang_page_hash as page_hash;
