//! How much of a long test runs: a sample by default, everything under `ci/test.py --long`.
//!
//! Test files include this file by its path. The profile `long` in `.config/nextest.toml` names
//! the tests that use it.

/// How many rounds or clients a test takes.
pub(crate) fn amount(sample: usize, full: usize) -> usize {
    match std::env::var("SGLANG_TEST_LONG").as_deref() {
        Ok("1") => full,
        _ => sample,
    }
}
