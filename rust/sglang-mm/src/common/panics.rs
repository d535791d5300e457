//! A panic as a value, so that it ends one piece of work and not the worker.
//!
//! Invariant: nothing that the work touched is looked at again after its panic.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A bug of ours, in the words of its panic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bug in sglang-mm: {0}")]
pub struct Panicked(String);

/// What `work` returns, unless it panics.
///
/// # Errors
///
/// When `work` panics.
pub fn caught<R>(work: impl FnOnce() -> R) -> Result<R, Panicked> {
    // `work` is used up, so no broken state of its own can be seen after.
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
    fn panics_have_words() {
        assert_eq!(Ok(3), caught(|| 3));
        let said = |work: fn()| caught(work).unwrap_err().to_string();
        assert_eq!("bug in sglang-mm: plain", said(|| panic!("plain")));
        assert_eq!(
            "bug in sglang-mm: the number 7",
            said(|| panic!("the number {}", std::hint::black_box(7)))
        );
        assert_eq!(
            "bug in sglang-mm: panic without a message",
            said(|| std::panic::panic_any(7))
        );
    }
}
