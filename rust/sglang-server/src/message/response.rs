//! The two forms of an answer: token steps from the scheduler, and text chunks for the client.
//!
//! Invariant: both are deltas. A route that returns the complete answer concatenates them.

use bytes::Bytes;

use super::FinishReason;
use crate::error::RequestError;

/// The part of one frame from the scheduler that belongs to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Tokens generated since the last step.
    pub output_ids: Vec<i32>,
    /// Why the generation ended, if it has.
    pub finish: Option<FinishReason>,
    /// Number of tokens in the prompt.
    pub prompt_tokens: u32,
    /// Log-probabilities and hidden states. Boxed, because few requests ask for them.
    pub extras: Option<Box<Extras<TokenLogprob>>>,
}

/// A token and its log-probability, which is NaN if there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Natural logarithm of the token's probability.
    pub logprob: f32,
    /// The token id.
    pub id: i32,
}

/// A [`TokenLogprob`] with the token's text, if the client asked for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextLogprob {
    /// Natural logarithm of the token's probability; `None` if there is none.
    pub logprob: Option<f32>,
    /// The token id.
    pub id: i32,
    /// The token's text.
    pub text: Option<String>,
}

/// Log-probabilities and hidden states. Output values belong to the tokens of the step; prompt
/// values are sent once.
#[derive(Clone, Debug, PartialEq)]
pub struct Extras<T> {
    /// For each output token of the step.
    pub output: Vec<T>,
    /// For each prompt token, from `logprob_start_len` on.
    pub input: Vec<T>,
    /// The likeliest tokens at each output position; empty if the position has none.
    pub output_top: Vec<Vec<T>>,
    /// The likeliest tokens at each prompt position.
    pub input_top: Vec<Vec<T>>,
    /// The tokens of `token_ids_logprob`, at each output position.
    pub output_ids: Vec<Vec<T>>,
    /// The tokens of `token_ids_logprob`, at each prompt position.
    pub input_ids: Vec<Vec<T>>,
    /// Hidden states, one row per token.
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

/// One piece of an answer, as the client receives it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Chunk {
    /// Text since the last chunk. Text that later tokens may still change is held back.
    pub text: String,
    /// Tokens since the last chunk, without the token that stopped the generation.
    pub output_ids: Vec<i32>,
    /// Number of tokens so far, including the token that stopped the generation.
    pub completion_tokens: u32,
    /// Number of tokens in the prompt.
    pub prompt_tokens: u32,
    /// Why the generation ended. Set on the last chunk only.
    pub finish: Option<FinishReason>,
    /// Log-probabilities and hidden states. Boxed, because few requests ask for them.
    pub extras: Option<Box<Extras<TextLogprob>>>,
}

/// An item that is sent to the sink of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ResponseEvent {
    /// A piece of a generation.
    Chunk(Chunk),
    /// The answer to a control message, in the scheduler's encoding.
    Control(Bytes),
    /// The text of given tokens: the whole answer to a request that only decodes them.
    Text(String),
    /// The request failed; no answer follows.
    Failed(RequestError),
}

impl ResponseEvent {
    /// Whether this is the last event of its request.
    #[must_use]
    pub(crate) fn is_last(&self) -> bool {
        match self {
            Self::Chunk(chunk) => chunk.finish.is_some(),
            Self::Control(_) | Self::Text(_) | Self::Failed(_) => true,
        }
    }
}
