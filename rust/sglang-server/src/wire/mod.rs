//! The frames that pass between frontend and scheduler, byte for byte as `WIRE.md` has them.
//!
//! Invariant: a frame that is not exactly what its header implies is refused whole, and
//! every request that it names is known.

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
