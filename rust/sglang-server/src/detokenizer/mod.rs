//! Turns tokens from the scheduler into text for clients.
//!
//! Invariant: the concatenated chunks of an answer equal the text that the tokenizer decodes from
//! all its tokens at once, cut at the stop string that ended the answer. No text is lost or added.

mod answer;
mod decoder;
mod shard;
mod stop;

#[cfg(test)]
mod tests;

pub(crate) use answer::Options;
pub use decoder::{DecodeOptions, Decoder, decode_one};
pub(crate) use shard::{Config, Event, Inboxes, Shards};
pub use stop::{StopFinder, Stops};
