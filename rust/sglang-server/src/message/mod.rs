//! The content of requests and answers, independent of HTTP and of the scheduler's wire format.
//!
//! Invariant: this module uses no HTTP types, no wire frames and no threads.

mod finish_reason;
pub mod generate;
mod json;
pub mod request;
pub mod response;
pub mod sampling;

pub use finish_reason::{FinishReason, Matched};
pub use generate::{BatchLimit, GenerateBody};
pub use request::{GenerateRequest, Prompt};
pub use response::{Chunk, Extras, ResponseEvent, Step};
pub use sampling::SamplingParams;
