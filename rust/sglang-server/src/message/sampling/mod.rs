//! Sampling parameters: how tokens are chosen, and when the generation stops.
//!
//! [`SamplingParams::from_json`] reads the client's object in three steps: parse (null means the
//! default, unknown names are refused), verify ranges, normalise. Checks that depend on the server
//! are separate methods, called later.
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
    reason = "each flag is an independent field of the request"
)]
pub struct SamplingParams {
    /// Maximum number of tokens to generate; `None`: as many as fit into the context.
    pub max_new_tokens: Option<i64>,
    /// Tokens that end the generation; `None` instead of an empty list.
    pub stop_token_ids: Option<Vec<i64>>,
    /// Divisor of the logits.
    pub temperature: f64,
    /// Cumulative probability of the likeliest tokens to choose from.
    pub top_p: f64,
    /// Number of likeliest tokens to choose from; 2^30 means all.
    pub top_k: i64,
    /// Minimum probability of a token, as a fraction of the likeliest token's probability.
    pub min_p: f64,
    /// Subtracted from a token's logit for each earlier occurrence.
    pub frequency_penalty: f64,
    /// Subtracted from a token's logit once if it has occurred.
    pub presence_penalty: f64,
    /// Divisor of the logits of tokens that have occurred.
    pub repetition_penalty: f64,
    /// Minimum number of tokens before the generation may end.
    pub min_new_tokens: i64,
    /// Number of answers the client asks for. It is 1 in every scheduler request.
    pub n: i64,
    /// A JSON schema that the text must conform to.
    pub json_schema: Option<String>,
    /// A regular expression that the text must match.
    pub regex: Option<String>,
    /// An EBNF grammar that the text must follow.
    pub ebnf: Option<String>,
    /// A structural tag, as JSON text.
    pub structural_tag: Option<String>,
    /// Whether to continue after the end-of-sequence token.
    pub ignore_eos: bool,
    /// Whether special tokens are left out of the text.
    pub skip_special_tokens: bool,
    /// Whether to put spaces between special tokens.
    pub spaces_between_special_tokens: bool,
    /// Whether the stop string or stop token stays in the answer.
    pub no_stop_trim: bool,
    /// Number of tokens between two frames of a stream.
    pub stream_interval: Option<i64>,
    /// Values added to the logits of some tokens.
    pub logit_bias: Option<Vec<(i64, f64)>>,
    /// Seed of the random choice.
    pub sampling_seed: Option<i64>,
    /// Parameters of a custom logit processor.
    pub custom_params: Option<Map<String, Value>>,
    /// Strings that end the generation.
    pub stop_strs: Vec<String>,
    /// Length of the longest stop string: in bytes at first, in tokens once it is tokenized.
    pub stop_str_max_len: i64,
}

impl Default for SamplingParams {
    /// The parameters for an empty object.
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
