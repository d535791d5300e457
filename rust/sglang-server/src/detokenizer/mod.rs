//! Tokens of the scheduler to text for clients.
//!
//! Invariant: text is never lost and never leaked: the chunks of an answer, put together,
//! are what the tokenizer decodes from all its tokens, up to the stop string that ended it.

mod answer;
mod decoder;
mod shard;
mod stop;

#[cfg(test)]
mod tests;

pub use answer::Options;
pub use decoder::{DecodeOptions, Decoder, decode_one};
pub use shard::{Config, Event, Gone, Inboxes, Shards};
pub use stop::{StopFinder, Stops};
