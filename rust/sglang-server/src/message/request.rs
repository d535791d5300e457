//! A generation as the scheduler is asked for it.
//!
//! Invariant: one of these is one request of the scheduler; batches and lists are taken
//! apart before.

use super::SamplingParams;
use crate::ids::Rid;

/// What to go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text, for the tokenizer.
    Text(String),
    /// Tokens, which may not be empty.
    Ids(Vec<i32>),
}

/// One request of the scheduler.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of the request of its own"
)]
pub struct GenerateRequest {
    /// Its name.
    pub rid: Rid,
    /// What to go on from.
    pub prompt: Prompt,
    /// How to choose tokens, and when to stop.
    pub sampling: SamplingParams,
    /// Whether the client gets every step, or the end alone.
    pub stream: bool,
    /// Whether to give the log-probabilities of tokens.
    pub return_logprob: bool,
    /// The first prompt token whose log-probability is given; -1: none of the prompt.
    pub logprob_start_len: i64,
    /// How many of the likeliest tokens to give at each position.
    pub top_logprobs_num: i64,
    /// Tokens whose log-probability to give at each position.
    pub token_ids_logprob: Option<Vec<i32>>,
    /// Whether log-probabilities come with the text of their tokens.
    pub return_text_in_logprobs: bool,
    /// Whether to give hidden states.
    pub return_hidden_states: bool,
    /// Where the other half of a disaggregated pair is.
    pub bootstrap: Bootstrap,
    /// The data-parallel rank that shall have it.
    pub routed_dp_rank: Option<i64>,
    /// The data-parallel rank that has prefilled it.
    pub disagg_prefill_dp_rank: Option<i64>,
}

impl GenerateRequest {
    /// One that asks for nothing but to go on from `prompt`.
    #[must_use]
    pub fn plain(rid: Rid, prompt: Prompt) -> Self {
        Self {
            rid,
            prompt,
            sampling: SamplingParams::default(),
            stream: false,
            return_logprob: false,
            logprob_start_len: -1,
            top_logprobs_num: 0,
            token_ids_logprob: None,
            return_text_in_logprobs: false,
            return_hidden_states: false,
            bootstrap: Bootstrap::default(),
            routed_dp_rank: None,
            disagg_prefill_dp_rank: None,
        }
    }
}

/// How the two halves of a disaggregated pair find each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bootstrap {
    /// Host of the prefill half.
    pub host: Option<String>,
    /// Its port.
    pub port: Option<i64>,
    /// The number of their meeting.
    pub room: Option<i64>,
    /// A key that both know.
    pub pair_key: Option<String>,
    /// Tensor-parallel ranks of the decode half.
    pub decode_tp_size: Option<i64>,
}
