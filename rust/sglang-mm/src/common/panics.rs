//! Turns a panic into an error, so that it fails one request and not the worker.
//!
//! Invariant: no state that the closure owned is used after its panic.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A bug in this crate, with the message of its panic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bug in sglang-mm: {0}")]
pub struct Panicked(String);

/// Runs `work` and returns its result.
///
/// # Errors
///
/// If `work` panics.
pub fn caught<R>(work: impl FnOnce() -> R) -> Result<R, Panicked> {
    // `work` is consumed, so its state cannot be observed after a panic.
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| Panicked(text(panic.as_ref()).to_owned()))
}

fn text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a message")
}

#[cfg(test)]
mod tests {
    use super::caught;

    #[test]
    fn panic_messages_are_kept() {
        assert_eq!(Ok(3), caught(|| 3));
        let message = |work: fn()| caught(work).unwrap_err().to_string();
        assert_eq!("bug in sglang-mm: plain", message(|| panic!("plain")));
        assert_eq!(
            "bug in sglang-mm: the number 7",
            message(|| panic!("the number {}", std::hint::black_box(7)))
        );
        assert_eq!(
            "bug in sglang-mm: panic without a message",
            message(|| std::panic::panic_any(7))
        );
    }
}
