//! The bytes of a source: an http(s) URL, a local file, a `data:` URL or bare base64.
//!
//! What a source is shows in how it begins, letter by letter: `http://`, `https://`,
//! `file://`, `/`, `data:`; anything else is base64, so a relative path is none. What may
//! be reached is the policy's to say, how much the budget's.
//!
//! A fetch blocks and starts no thread. It never runs on the pool of `par`: who has a fixed
//! number of workers fetches elsewhere and hands over bytes.
//!
//! Invariant: a fetch that fails leaves the budget as it found it.

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

/// The most bytes that one file or one answer may hold, once decompressed.
pub const MAX_FETCH_BYTES: u64 = 64 << 20;

/// How many redirects are followed.
pub const MAX_REDIRECTS: usize = 5;

/// The bytes of `source`, at most [`MAX_FETCH_BYTES`], by the open policy.
///
/// # Errors
///
/// As [`FetchPolicy::fetch`].
pub fn fetch_bytes(source: &str) -> Result<Vec<u8>, FetchError> {
    fetch_bytes_budgeted(source, &ByteBudget::new(MAX_FETCH_BYTES))
}

/// The bytes of `source` by the open policy.
///
/// # Errors
///
/// As [`FetchPolicy::fetch`].
pub fn fetch_bytes_budgeted(source: &str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
    FetchPolicy::open().fetch(source, budget)
}

/// A local file by the open policy, however long.
///
/// # Errors
///
/// As [`FetchPolicy::fetch_local_file`].
pub fn fetch_local_file_budgeted(source: &str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
    FetchPolicy::open().fetch_local_file(source, budget)
}

impl FetchPolicy {
    /// The bytes of `source`. Files and answers hold at most [`MAX_FETCH_BYTES`]; inline data
    /// is bounded by `budget` alone. What is returned stays charged to `budget`.
    ///
    /// # Errors
    ///
    /// Anything but those bytes: a refusal, a failure, an answer that is none or empty, too
    /// many bytes, bad base64. `budget` is then as before.
    pub fn fetch(&self, source: &str, budget: &ByteBudget) -> Result<Vec<u8>, FetchError> {
        let begins = |prefix| source.starts_with(prefix);
        if begins("http://") || begins("https://") {
            http::get(self, source, budget)
        } else if begins("file://") || begins("/") {
            files::read(&self.files, source, budget)
        } else if begins("data:") {
            inline::data_url(source, budget)
        } else {
            inline::bare(source, budget)
        }
    }

    /// The bytes of a regular file, by absolute path or `file://` URL, bounded by `budget`
    /// alone: for media that are longer than what a stranger may send.
    ///
    /// # Errors
    ///
    /// A refusal or a failure, a file that is not regular, longer than `budget`, or that
    /// changes its size meanwhile. `budget` is then as before.
    pub fn fetch_local_file(
        &self,
        source: &str,
        budget: &ByteBudget,
    ) -> Result<Vec<u8>, FetchError> {
        files::read_whole(&self.files, source, budget)
    }
}
