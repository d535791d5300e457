//! The digests that name KV-cache pages, chained so that a page names its whole prefix.
//!
//! A *page* is a run of tokens; its digest is SHA-256 over the digest before it and its
//! tokens as little-endian `u32`. What comes before the first page is nothing, or a
//! *seed* that keeps one namespace or salt apart from all others. The digests are
//! written to other machines and to disk: every byte that is hashed is a promise.
//!
//! Invariant: pure functions of their arguments; no state, no I/O, no Python.

mod chain;
mod digest;
mod seed;

pub use chain::{TokenOutOfRange, bigram_pages, pages};
pub use digest::{NotADigest, PageHash};
pub use seed::{cache_salt_seed, namespace_seed};
