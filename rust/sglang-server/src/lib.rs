//! An HTTP frontend between clients and a scheduler that knows tokens only.
//!
//! A request comes in over HTTP (`api`), becomes [`message`]s, is admitted, tokenized and
//! checked (`to_scheduler`), and goes to the scheduler as frames (`wire`) in a ring
//! (`channel`). Frames come back (`from_scheduler`), become text in the shard that has the
//! request ([`detokenizer`]), and leave as JSON or as events.
//!
//! Invariant: every request that was admitted gets exactly one end: an answer, an error,
//! or, when its client left, an abort that reaches the scheduler.

mod api;
pub mod channel;
pub mod config;
mod cores;
pub mod detokenizer;
mod drain;
pub mod error;
mod from_scheduler;
mod frontend;
pub mod ids;
pub mod live;
pub mod logging;
pub mod message;
#[cfg(feature = "python")]
pub mod python;
pub mod runtime;
mod stage;
mod to_scheduler;
pub mod tokenizer;
pub mod wire;
pub mod workers;
