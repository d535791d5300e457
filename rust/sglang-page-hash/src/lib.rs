//! Digests that identify KV-cache pages. They are chained, so a digest identifies the whole prefix.
//!
//! A *page* is a run of tokens. Its digest is SHA-256 over the previous digest and the page's tokens
//! as little-endian `u32`. The first page has no previous digest; a *seed* may take its place. Seeds
//! separate namespaces and salts. Digests are sent to other machines and stored on disk, so the
//! hashed bytes must never change.
//!
//! Invariant: only pure functions; no state, no I/O, no Python.

mod chain;
mod digest;
mod seed;

pub use chain::{TokenOutOfRange, bigram_pages, pages};
pub use digest::{NotADigest, PageHash};
pub use seed::{cache_salt_seed, namespace_seed};
