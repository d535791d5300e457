//! The content of requests and answers, independent of HTTP and of the scheduler's wire format.
//!
//! Invariant: this module uses no HTTP types, no wire frames and no threads.

mod finish_reason;
pub(crate) mod generate;
mod json;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod sampling;

pub(crate) use finish_reason::{FinishReason, Matched};
pub use generate::{BatchLimit, GenerateBody};
pub(crate) use request::{GenerateRequest, Prompt};
pub(crate) use response::{Chunk, Extras, ResponseEvent, Step};
pub(crate) use sampling::SamplingParams;
