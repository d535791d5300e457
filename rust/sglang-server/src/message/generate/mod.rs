//! The body of `POST /generate`.
//!
//! Each field of the body is a column: one value for all prompts, or a list with one value per
//! prompt. [`GenerateBody::from_json`] reads the columns. [`GenerateBody::into_requests`] turns
//! them into scheduler requests, one for each answer.
//!
//! Invariants: the whole body is validated before any request is sent. Copies of shared values
//! take a bounded number of bytes.

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
