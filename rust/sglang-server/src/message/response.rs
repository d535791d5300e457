//! An answer in its two forms: tokens as the scheduler sends them, text as clients get it.
//!
//! Invariant: both are deltas. Whoever shows the whole adds them up.

use bytes::Bytes;

use super::FinishReason;
use crate::error::RequestError;

/// What the scheduler says about one request in one frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Tokens since the last step.
    pub output_ids: Vec<i32>,
    /// Why it ended, if it did.
    pub finish: Option<FinishReason>,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// What few ask for.
    pub extras: Option<Box<Extras<TokenLogprob>>>,
}

/// A token and its log-probability; NaN where there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Natural logarithm of the probability.
    pub logprob: f32,
    /// The token.
    pub id: i32,
}

/// As [`TokenLogprob`], with the token's text where it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct TextLogprob {
    /// Natural logarithm of the probability; nothing where there is none.
    pub logprob: Option<f32>,
    /// The token.
    pub id: i32,
    /// Its text.
    pub text: Option<String>,
}

/// Log-probabilities and hidden states. Those of the output belong to the step's tokens,
/// those of the prompt come once.
#[derive(Clone, Debug, PartialEq)]
pub struct Extras<T> {
    /// Of each token of the step.
    pub output: Vec<T>,
    /// Of each prompt token from the one asked for on.
    pub input: Vec<T>,
    /// The likeliest tokens at each output position; nothing where the position has none.
    pub output_top: Vec<Vec<T>>,
    /// The likeliest tokens at each prompt position.
    pub input_top: Vec<Vec<T>>,
    /// The tokens asked for at each output position.
    pub output_ids: Vec<Vec<T>>,
    /// The tokens asked for at each prompt position.
    pub input_ids: Vec<Vec<T>>,
    /// Hidden states, a row a token.
    pub hidden: Vec<Vec<f32>>,
}

impl<T> Default for Extras<T> {
    fn default() -> Self {
        Self {
            output: Vec::new(),
            input: Vec::new(),
            output_top: Vec::new(),
            input_top: Vec::new(),
            output_ids: Vec::new(),
            input_ids: Vec::new(),
            hidden: Vec::new(),
        }
    }
}

/// What a client gets of one request at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk {
    /// Text since the last chunk; what may still turn out to be another is held back.
    pub text: String,
    /// Tokens since the last chunk, without one that stopped the generation.
    pub output_ids: Vec<i32>,
    /// Tokens so far, with one that stopped the generation.
    pub completion_tokens: u32,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Why it ended, if it did: then this is the last chunk.
    pub finish: Option<FinishReason>,
    /// What few ask for.
    pub extras: Option<Box<Extras<TextLogprob>>>,
}

/// What arrives at the sink of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseEvent {
    /// Some of a generation.
    Chunk(Chunk),
    /// The answer to a control message, as the scheduler encoded it.
    Control(Bytes),
    /// Text, for a request that asked for no more.
    Text(String),
    /// The end without an answer.
    Failed(RequestError),
}

impl ResponseEvent {
    /// Whether nothing comes after it.
    #[must_use]
    pub fn is_last(&self) -> bool {
        match self {
            Self::Chunk(chunk) => chunk.finish.is_some(),
            Self::Control(_) | Self::Text(_) | Self::Failed(_) => true,
        }
    }
}
