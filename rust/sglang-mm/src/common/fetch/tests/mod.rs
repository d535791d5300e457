//! Fetches against servers that misbehave, files that are none, and policies.
//!
//! Every fetch goes through [`fetch`], which also holds the laws of all of them: the budget
//! is charged with what comes back and nothing else, and an error is short and holds no secret.

mod answers;
mod bodies;
mod files;
mod inline;
mod policies;
mod proxied;
mod redirects;
mod server;
mod tls;

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use super::{ByteBudget, FetchPolicy, MAX_FETCH_BYTES, proxies::Proxies};

/// In every URL of these tests that has room for it.
const SECRET: &str = "hunter2";

/// The open policy without the environment of whoever runs the tests, and with time enough.
fn open() -> FetchPolicy {
    quiet(FetchPolicy::open())
}

/// The closed policy, likewise.
fn closed() -> FetchPolicy {
    quiet(FetchPolicy::closed())
}

fn quiet(policy: FetchPolicy) -> FetchPolicy {
    FetchPolicy {
        timeout: Some(Duration::from_mins(1)),
        proxies: Some(Proxies::default()),
        ..policy
    }
}

/// What a fetch gives: bytes, or the text of its error.
fn fetch(policy: &FetchPolicy, source: &str) -> Result<Vec<u8>, String> {
    budgeted(|budget| policy.fetch(source, budget), MAX_FETCH_BYTES)
}

fn budgeted<E: std::error::Error>(
    fetch: impl FnOnce(&ByteBudget) -> Result<Vec<u8>, E>,
    bytes: u64,
) -> Result<Vec<u8>, String> {
    let budget = ByteBudget::new(bytes);
    let result = fetch(&budget).map_err(|error| error.to_string());
    let held = result.as_ref().map_or(0, |bytes| bytes.len() as u64);
    assert_eq!(bytes - held, budget.remaining(), "the budget leaks");
    if let Err(error) = &result {
        assert!(error.starts_with("media fetch: "), "{error}");
        assert!(!error.contains(SECRET), "{error}");
        assert!(error.len() < 400, "{error}");
    }
    result
}

/// The words of an error, which must be one.
fn refusal(policy: &FetchPolicy, source: &str) -> String {
    fetch(policy, source).expect_err(source)
}

/// A folder that goes with its owner.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sglang-mm-fetch-{}-{number}", process::id()));
        fs::create_dir(&path).unwrap();
        // What the tests compare with must not have links in it.
        Self(path.canonicalize().unwrap())
    }

    /// A file in it.
    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A file of zeros in it that takes up no room.
    fn sparse(&self, name: &str, len: u64) -> PathBuf {
        let path = self.file(name, b"");
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(len)
            .unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
