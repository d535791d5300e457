//! What the frontend is told at start, and what it assumes where it is not told.
//!
//! Invariant: nothing here is read from the environment later; a running server keeps the
//! settings that it started with.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value};

/// What the serving engine says of itself. Every field is required, so that an engine and
/// a frontend of different versions notice at start.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct ServerArgs {
    /// Where the model's files are, or its name.
    pub model_path: String,
    /// The name that clients know it by.
    pub served_model_name: String,
    /// Where the tokenizer is: a `tokenizer.json`, or a folder with one. Nothing: the
    /// built-in tokenizer of bytes.
    pub tokenizer_path: Option<String>,
    /// Revision of the model's files.
    pub revision: Option<String>,
    /// How weights were loaded.
    pub load_format: String,
    /// Version of the weights.
    pub weight_version: String,
    /// An address to listen on, or a name with one.
    pub host: String,
    /// The port; 0: any that is free.
    pub port: u16,
    /// Level of the log.
    pub log_level: String,
    /// Level of the access log, where it differs.
    pub log_level_http: Option<String>,
    /// The chat template, where it is not the model's own.
    pub chat_template: Option<String>,
    /// How tool calls are written.
    pub tool_call_parser: Option<String>,
    /// How reasoning is written.
    pub reasoning_parser: Option<String>,
    /// Whether streams report usage unasked.
    pub stream_response_default_include_usage: bool,
    /// Threads that tokenize.
    pub tokenizer_worker_num: usize,
    /// Threads that detokenize.
    pub detokenizer_worker_num: usize,
    /// Tokens in, tokens out.
    pub skip_tokenizer_init: bool,
    /// Whether frames of a stream carry deltas instead of the whole so far.
    pub incremental_streaming_output: bool,
    /// Which half of a disaggregated pair this is.
    pub disaggregation_mode: DisaggregationMode,
    /// The model.
    pub model_config: ModelConfig,
    /// Sampling parameters for whoever does not say otherwise.
    pub preferred_sampling_params: Option<Map<String, Value>>,
    /// Most pictures, videos and sounds in a request, by kind.
    pub limit_mm_data_per_request: BTreeMap<String, i64>,
    /// Whether a prompt that is too long is cut instead of refused.
    pub allow_auto_truncate: bool,
    /// Whether hidden states may be asked for.
    pub enable_return_hidden_states: bool,
    /// Tokens of a context that the scheduler keeps for itself.
    pub num_reserved_tokens: i64,
    /// Version of the engine.
    pub version: String,
    /// Tokens that all requests together may have.
    pub max_total_num_tokens: i64,
}

impl ServerArgs {
    /// Those of a model by itself: on a free port of the loopback address, with the
    /// built-in tokenizer and a thread of each kind. For programs that embed the frontend
    /// in Rust; what Python launches says all of it.
    #[must_use]
    pub fn of_model(name: &str, model_config: ModelConfig) -> Self {
        Self {
            model_path: name.to_owned(),
            served_model_name: name.to_owned(),
            tokenizer_path: None,
            revision: None,
            load_format: "auto".to_owned(),
            weight_version: "default".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 0,
            log_level: "info".to_owned(),
            log_level_http: None,
            chat_template: None,
            tool_call_parser: None,
            reasoning_parser: None,
            stream_response_default_include_usage: false,
            tokenizer_worker_num: 1,
            detokenizer_worker_num: 1,
            skip_tokenizer_init: false,
            incremental_streaming_output: false,
            disaggregation_mode: DisaggregationMode::Null,
            max_total_num_tokens: model_config.context_len,
            model_config,
            preferred_sampling_params: None,
            limit_mm_data_per_request: BTreeMap::new(),
            allow_auto_truncate: false,
            enable_return_hidden_states: false,
            num_reserved_tokens: 0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// What the frontend must know of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Most tokens of a prompt and its continuation.
    pub context_len: i64,
    /// Tokens that there are.
    pub vocab_size: i64,
    /// Whether it takes pictures.
    pub is_multimodal: bool,
    /// What the model's own configuration proposes.
    pub default_sampling_params: DefaultSamplingParams,
}

impl ModelConfig {
    /// A model of text without advice of its own, with so many tokens in a context and in
    /// all.
    #[must_use]
    pub fn of_text(context_len: i64, vocab_size: i64) -> Self {
        Self {
            context_len,
            vocab_size,
            is_multimodal: false,
            default_sampling_params: DefaultSamplingParams::default(),
        }
    }
}

/// Sampling parameters that come with a model, where it has any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DefaultSamplingParams {
    /// See [`SamplingParams`](crate::message::SamplingParams).
    pub temperature: Option<f64>,
    /// Likewise.
    pub top_p: Option<f64>,
    /// Likewise.
    pub top_k: Option<i64>,
    /// Likewise.
    pub min_p: Option<f64>,
    /// Likewise.
    pub repetition_penalty: Option<f64>,
}

/// Which half of a disaggregated pair this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DisaggregationMode {
    /// Not one of a pair.
    #[default]
    Null,
    /// The half that reads prompts.
    Prefill,
    /// The half that writes answers.
    Decode,
}

impl DisaggregationMode {
    /// Whether there is another half.
    #[must_use]
    pub fn is_pair(self) -> bool {
        self != Self::Null
    }
}

/// How the frontend itself behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendConfig {
    /// Most bytes of a request's body.
    pub body_limit: usize,
    /// How long requests in flight may take to end after the server is told to.
    pub drain_deadline: Duration,
    /// How long a request's head and body may take to arrive.
    pub read_timeout: Duration,
    /// How long `/health_generate` waits for the scheduler.
    pub health_timeout: Duration,
    /// Whether `/health_generate` asks the scheduler at all.
    pub health_generation: bool,
    /// How old the scheduler's last sign of life may be for `/health`.
    pub heartbeat_limit: Duration,
    /// Most requests in one body; negative: no limit.
    pub most_requests: i64,
    /// Whether each request is a line of the log.
    pub access_log: bool,
    /// Messages in the ring to the scheduler.
    pub to_scheduler_cap: usize,
    /// Frames in the ring from it.
    pub from_scheduler_cap: usize,
    /// Requests between two stages, and unread events of one answer.
    pub stage_cap: usize,
}

impl Default for FrontendConfig {
    fn default() -> Self {
        Self {
            body_limit: 64 << 20,
            drain_deadline: Duration::from_secs(5),
            read_timeout: Duration::from_mins(1),
            health_timeout: Duration::from_secs(20),
            health_generation: true,
            heartbeat_limit: Duration::from_secs(30),
            most_requests: 4096,
            access_log: false,
            to_scheduler_cap: 8192,
            from_scheduler_cap: 8192,
            stage_cap: 8192,
        }
    }
}
