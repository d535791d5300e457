//! The frames between frontend and scheduler, byte for byte as `WIRE.md` specifies them.
//!
//! Invariant: a frame whose data do not match its header is rejected as a whole, and the error
//! names every request of the frame.

mod batch;
mod decode;
mod from_scheduler;
mod to_scheduler;

pub use decode::MalformedFrame;
pub(crate) use from_scheduler::control_result;
// Public for the integration tests, which can use only public items. No other crate reads frames.
#[doc(hidden)]
pub use from_scheduler::Frame;
pub use from_scheduler::{batch_frame, control_frame, error_frame};
pub(crate) use to_scheduler::{abort, flush_cache, generate, internal_state};

#[cfg(test)]
mod tests;
