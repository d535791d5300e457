//! A generation request in the form that the scheduler receives.
//!
//! Invariant: a `GenerateRequest` is exactly one request to the scheduler. Batches and lists of
//! prompts are split before it is built.

use super::SamplingParams;
use crate::ids::Rid;

/// The input that the model continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text, still to be tokenized.
    Text(String),
    /// Token ids; never empty.
    Ids(Vec<i32>),
}

/// One request to the scheduler.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each flag is an independent field of the request"
)]
pub struct GenerateRequest {
    /// The request id.
    pub rid: Rid,
    /// The input that the model continues.
    pub prompt: Prompt,
    /// How tokens are chosen, and when the generation stops.
    pub sampling: SamplingParams,
    /// Whether the client gets every step as it arrives, or only the complete answer.
    pub stream: bool,
    /// Whether to return the log-probabilities of tokens.
    pub return_logprob: bool,
    /// The first prompt token whose log-probability is returned; -1: none of the prompt.
    pub logprob_start_len: i64,
    /// How many of the likeliest tokens to return at each position.
    pub top_logprobs_num: i64,
    /// Tokens whose log-probability is returned at each position.
    pub token_ids_logprob: Option<Vec<i32>>,
    /// Whether log-probabilities include the text of their tokens.
    pub return_text_in_logprobs: bool,
    /// Whether to return hidden states.
    pub return_hidden_states: bool,
    /// How to reach the other half of a disaggregated prefill/decode pair.
    pub bootstrap: Bootstrap,
    /// The data-parallel rank that must serve the request.
    pub routed_dp_rank: Option<i64>,
    /// The data-parallel rank that prefilled the request.
    pub disagg_prefill_dp_rank: Option<i64>,
}

impl GenerateRequest {
    /// A request that continues `prompt`, with every option at its default.
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

/// How the prefill half and the decode half of a disaggregated pair find each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bootstrap {
    /// Host of the prefill half.
    pub host: Option<String>,
    /// Port of the prefill half.
    pub port: Option<i64>,
    /// Number that identifies this request to both halves.
    pub room: Option<i64>,
    /// A key that both halves share.
    pub pair_key: Option<String>,
    /// Number of tensor-parallel ranks of the decode half.
    pub decode_tp_size: Option<i64>,
}
