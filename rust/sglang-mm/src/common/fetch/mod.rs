//! Fetches the bytes of a source: an http(s) URL, a local file, a `data:` URL or bare base64.
//!
//! The start of a source decides its kind, case-sensitively: `http://`, `https://`, `file://`,
//! `/`, `data:`. Anything else is base64, so a relative path is not a file. The policy limits
//! what may be reached, and the budget limits how many bytes.
//!
//! A fetch blocks and starts no thread. It never runs on the pool of `par`. A program with a
//! fixed number of worker threads should fetch on other threads and pass bytes to the workers.
//!
//! Invariant: a failed fetch leaves the budget unchanged.

mod address;
mod budget;
mod capped;
mod dial;
mod error;
mod files;
mod forward;
mod hosts;
mod http;
mod inline;
mod policy;
mod proxies;
mod target;
#[cfg(test)]
mod tests;

pub use budget::ByteBudget;
pub use error::{FetchError, HttpError};
pub use hosts::HostList;
pub use policy::{FetchPolicy, Files, Reach};

/// The largest size in bytes of one file or of one decompressed response.
pub const MAX_FETCH_BYTES: u64 = 64 << 20;

/// The largest number of redirects that are followed.
pub const MAX_REDIRECTS: usize = 5;

/// Fetches `source` with the open policy, at most [`MAX_FETCH_BYTES`].
///
/// # Errors
///
/// As [`FetchPolicy::fetch`].
pub fn fetch_bytes(source: &str) -> Result<Vec<u8>, FetchError> {
    fetch_bytes_budgeted(source, &ByteBudget::new(MAX_FETCH_BYTES))
}

/// Fetches `source` with the open policy.
///
/// # Errors
///
/// As [`FetchPolicy::fetch`].
pub fn fetch_bytes_budgeted(source: &str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
    FetchPolicy::open().fetch(source, budget)
}

/// Reads a local file of any length that fits the budget, with the open policy.
///
/// # Errors
///
/// As [`FetchPolicy::fetch_local_file`].
pub fn fetch_local_file_budgeted(source: &str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
    FetchPolicy::open().fetch_local_file(source, budget)
}

impl FetchPolicy {
    /// Fetches `source`. Files and responses may have at most [`MAX_FETCH_BYTES`]. Inline data is
    /// limited by `budget` alone. The returned bytes stay charged to `budget`.
    ///
    /// # Errors
    ///
    /// If the policy refuses the source, the fetch fails, the response is empty, there are too
    /// many bytes, or the base64 is invalid. `budget` is then unchanged.
    pub fn fetch(&self, source: &str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
        let starts_with = |prefix| source.starts_with(prefix);
        if starts_with("http://") || starts_with("https://") {
            http::get(self, source, budget)
        } else if starts_with("file://") || starts_with("/") {
            files::read(&self.files, source, budget)
        } else if starts_with("data:") {
            inline::data_url(source, budget)
        } else {
            inline::bare(source, budget)
        }
    }

    /// Reads a regular file, by absolute path or `file://` URL. Only `budget` limits its length,
    /// so it may be longer than [`MAX_FETCH_BYTES`].
    ///
    /// # Errors
    ///
    /// If the policy refuses the file, reading fails, or the file is not regular, exceeds
    /// `budget` or changes its size during the read. `budget` is then unchanged.
    pub fn fetch_local_file(
        &self,
        source: &str,
        budget: &ByteBudget,
    ) -> Result<Vec<u8>, FetchError> {
        files::read_whole(&self.files, source, budget)
    }
}
