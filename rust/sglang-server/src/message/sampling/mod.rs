//! How tokens are chosen, and when to stop.
//!
//! What a client says becomes parameters in three steps: [`SamplingParams::from_json`]
//! reads (null is the default, a name that is none is refused), verifies the ranges and
//! normalises. What depends on the server is asked of the parameters later.
//!
//! Invariant: the order of fields is the order on the wire.

mod read;
mod rules;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

/// Sampling parameters, complete and normalised.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of the request of its own"
)]
pub struct SamplingParams {
    /// Most tokens to generate; nothing: as many as fit.
    pub max_new_tokens: Option<i64>,
    /// Tokens that end the generation; empty is nothing.
    pub stop_token_ids: Option<Vec<i64>>,
    /// Divisor of the logits.
    pub temperature: f64,
    /// Probability mass to choose from.
    pub top_p: f64,
    /// Number of tokens to choose from; 2^30 is all.
    pub top_k: i64,
    /// Share of the likeliest token's probability that others need.
    pub min_p: f64,
    /// What each earlier occurrence of a token costs it.
    pub frequency_penalty: f64,
    /// What any earlier occurrence of a token costs it.
    pub presence_penalty: f64,
    /// Divisor of the logits of tokens that occurred.
    pub repetition_penalty: f64,
    /// Tokens before the generation may end.
    pub min_new_tokens: i64,
    /// Answers asked for; each request of the scheduler has one.
    pub n: i64,
    /// A JSON schema that the text must fit.
    pub json_schema: Option<String>,
    /// A regular expression that the text must match.
    pub regex: Option<String>,
    /// A grammar that the text must follow.
    pub ebnf: Option<String>,
    /// A structural tag, as JSON text.
    pub structural_tag: Option<String>,
    /// Whether to go on at the end-of-sequence token.
    pub ignore_eos: bool,
    /// Whether special tokens have no text.
    pub skip_special_tokens: bool,
    /// Whether spaces go between special tokens.
    pub spaces_between_special_tokens: bool,
    /// Whether what stopped the generation stays in the text.
    pub no_stop_trim: bool,
    /// Steps between two frames of a stream.
    pub stream_interval: Option<i64>,
    /// What is added to the logits of some tokens.
    pub logit_bias: Option<Vec<(i64, f64)>>,
    /// Seed of the choice.
    pub sampling_seed: Option<i64>,
    /// What a custom logit processor takes.
    pub custom_params: Option<Map<String, Value>>,
    /// Texts that end the generation.
    pub stop_strs: Vec<String>,
    /// Tokens of the longest of them.
    pub stop_str_max_len: i64,
}

impl Default for SamplingParams {
    /// What an empty object means.
    fn default() -> Self {
        Self {
            max_new_tokens: Some(128),
            stop_token_ids: None,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 1 << 30,
            min_p: 0.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repetition_penalty: 1.0,
            min_new_tokens: 0,
            n: 1,
            json_schema: None,
            regex: None,
            ebnf: None,
            structural_tag: None,
            ignore_eos: false,
            skip_special_tokens: true,
            spaces_between_special_tokens: true,
            no_stop_trim: false,
            stream_interval: None,
            logit_bias: None,
            sampling_seed: None,
            custom_params: None,
            stop_strs: Vec::new(),
            stop_str_max_len: 0,
        }
    }
}
