//! The frames between frontend and scheduler, byte for byte as `WIRE.md` specifies them.
//!
//! Invariant: a frame that differs from what its header implies is rejected as a whole, and the
//! error names every request of the frame.

mod batch;
mod decode;
mod from_scheduler;
mod to_scheduler;

pub use decode::MalformedFrame;
pub(crate) use from_scheduler::control_result;
pub use from_scheduler::{Frame, batch_frame, control_frame, error_frame};
pub use to_scheduler::{abort, flush_cache, generate, internal_state};

#[cfg(test)]
mod tests;
