//! What the body of `POST /generate` asks for.
//!
//! A body has columns: a value is one for the call, or a list of one for each prompt.
//! [`GenerateBody::from_json`] reads them, [`GenerateBody::into_requests`] turns columns
//! into one request of the scheduler for each answer.
//!
//! Invariant: a body is refused or understood before anything is sent; what it repeats
//! for its prompts takes no more than a fixed number of bytes.

mod body;
mod column;
mod ids;
mod limits;
mod prompts;
mod requests;

pub use body::GenerateBody;
pub use limits::BatchLimit;

#[cfg(test)]
mod tests;
