//! What a request asks for and what an answer consists of, apart from how either travels.
//!
//! Invariant: nothing here knows HTTP, the scheduler's frames, or a thread.

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
