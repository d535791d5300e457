//! Fetches from servers that misbehave, from invalid files, and with restrictive policies.
//!
//! Every fetch goes through [`budgeted`], which checks rules that hold for all of them: the budget
//! is charged with exactly the returned bytes, and an error is short and contains no secret.

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

/// The password and signature in the URLs of these tests. No error may contain it.
const SECRET: &str = "hunter2";

/// The open policy, isolated from the environment and with a long timeout.
fn open() -> FetchPolicy {
    isolated(FetchPolicy::open())
}

/// The closed policy, isolated from the environment and with a long timeout.
fn closed() -> FetchPolicy {
    isolated(FetchPolicy::closed())
}

fn isolated(policy: FetchPolicy) -> FetchPolicy {
    FetchPolicy {
        timeout: Some(Duration::from_mins(1)),
        proxies: Some(Proxies::default()),
        ..policy
    }
}

/// Fetches `source`: the bytes, or the text of the error.
fn fetch(policy: &FetchPolicy, source: &str) -> Result<Vec<u8>, String> {
    budgeted(|budget| policy.fetch(source, budget), MAX_FETCH_BYTES)
}

/// Runs `fetch` with a budget of `bytes` and checks the rules for all fetches.
fn budgeted<E: std::error::Error>(
    fetch: impl FnOnce(&ByteBudget) -> Result<Vec<u8>, E>,
    bytes: u64,
) -> Result<Vec<u8>, String> {
    let budget = ByteBudget::new(bytes);
    let result = fetch(&budget).map_err(|error| error.to_string());
    let held = result.as_ref().map_or(0, |bytes| bytes.len() as u64);
    assert_eq!(
        bytes - held,
        budget.remaining(),
        "the budget must be charged with the returned bytes only"
    );
    if let Err(error) = &result {
        assert!(error.starts_with("media fetch: "), "{error}");
        assert!(!error.contains(SECRET), "{error}");
        assert!(error.len() < 400, "{error}");
    }
    result
}

/// The text of the error of a fetch that must fail.
fn error_of(policy: &FetchPolicy, source: &str) -> String {
    fetch(policy, source).expect_err(source)
}

/// A temporary folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sglang-mm-fetch-{}-{number}", process::id()));
        fs::create_dir(&path).unwrap();
        // Canonical, because the tests compare it with resolved paths.
        Self(path.canonicalize().unwrap())
    }

    /// Creates a file in the folder.
    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Creates a sparse file of zeros, which takes no disk space.
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
