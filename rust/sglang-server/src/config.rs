//! The settings that a frontend starts with.
//!
//! Each setting is a field of one struct here. Rust has no second list of settings: the derived
//! `FromPyObject` reads `ServerArgs` from Python. The Python side has its own list, in
//! `rust_server/context.py`. `tests/server/test_settings.py` compares both with the stub
//! `_server.pyi`.
//!
//! Invariant: a running server keeps the settings that it started with. Nothing here is read
//! from the environment.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value};

/// The settings of the serving engine. Every field is required, so that a version mismatch
/// between the engine and the frontend is an error at start.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject), pyo3(from_item_all))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent setting"
)]
pub struct ServerArgs {
    /// The directory of the model's files, or the model's name.
    pub model_path: String,
    /// The model name in the API.
    pub served_model_name: String,
    /// A `tokenizer.json`, or a directory that contains one. `None` selects the built-in byte
    /// tokenizer.
    pub tokenizer_path: Option<String>,
    /// Revision of the model's files.
    pub revision: Option<String>,
    /// Format from which the weights were loaded.
    pub load_format: String,
    /// Version of the weights.
    pub weight_version: String,
    /// Address or host name to listen on.
    pub host: String,
    /// Port to listen on; 0 selects a free port.
    pub port: u16,
    /// Log level.
    pub log_level: String,
    /// Level of the access log; `None` means `log_level`.
    pub log_level_http: Option<String>,
    /// Chat template that replaces the model's own.
    pub chat_template: Option<String>,
    /// Format of tool calls in the model's output.
    pub tool_call_parser: Option<String>,
    /// Format of reasoning in the model's output.
    pub reasoning_parser: Option<String>,
    /// Whether a stream reports usage by default.
    pub stream_response_default_include_usage: bool,
    /// Tokenizer threads.
    pub tokenizer_worker_num: usize,
    /// Detokenizer threads.
    pub detokenizer_worker_num: usize,
    /// Whether to run without a tokenizer: clients send and receive token ids.
    pub skip_tokenizer_init: bool,
    /// Whether a frame of a stream carries only the new output instead of all output so far.
    pub incremental_streaming_output: bool,
    /// The role in a disaggregated pair.
    pub disaggregation_mode: DisaggregationMode,
    /// Limits and defaults of the model.
    pub model_config: ModelConfig,
    /// Default sampling parameters, which a request overrides. Python passes them as JSON text.
    #[cfg_attr(feature = "python", pyo3(from_py_with = crate::python::json_object))]
    pub preferred_sampling_params: Option<Map<String, Value>>,
    /// Maximum number of images, videos and audio clips in a request, by kind.
    pub limit_mm_data_per_request: BTreeMap<String, i64>,
    /// Whether a prompt that is too long is truncated instead of refused.
    pub allow_auto_truncate: bool,
    /// Whether a request may ask for hidden states.
    pub enable_return_hidden_states: bool,
    /// Number of tokens that the scheduler reserves in each context.
    pub num_reserved_tokens: i64,
    /// Version of the engine.
    pub version: String,
    /// Maximum number of tokens of all running requests together.
    pub max_total_num_tokens: i64,
}

impl ServerArgs {
    /// Settings for one model: a free port of the loopback address, the built-in tokenizer, and
    /// one thread of each kind. For Rust programs that embed the frontend; Python sets every
    /// field.
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

/// Limits and defaults of the model.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, from_py_object, module = "sglang.srt.rust_extensions._server")
)]
pub struct ModelConfig {
    /// Maximum number of tokens of a prompt and its completion together.
    pub context_len: i64,
    /// Token ids are below this number.
    pub vocab_size: i64,
    /// Whether the model accepts images, video or audio.
    pub is_multimodal: bool,
    /// Sampling parameters from the model's own configuration.
    pub default_sampling_params: DefaultSamplingParams,
}

impl ModelConfig {
    /// A text model without default sampling parameters.
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

/// Sampling parameters from the model's own configuration; `None` where it has no value.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, from_py_object, module = "sglang.srt.rust_extensions._server")
)]
pub struct DefaultSamplingParams {
    /// This field and those below mean the same as in the sampling parameters of a request.
    pub temperature: Option<f64>,
    /// See `temperature`.
    pub top_p: Option<f64>,
    /// See `temperature`.
    pub top_k: Option<i64>,
    /// See `temperature`.
    pub min_p: Option<f64>,
    /// See `temperature`.
    pub repetition_penalty: Option<f64>,
}

/// The role of a server in a disaggregated pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(
        eq,
        eq_int,
        frozen,
        from_py_object,
        module = "sglang.srt.rust_extensions._server"
    )
)]
pub enum DisaggregationMode {
    /// Not part of a pair.
    #[default]
    Null,
    /// The server that processes prompts.
    Prefill,
    /// The server that generates output.
    Decode,
}

impl DisaggregationMode {
    /// Whether the server is part of a pair.
    #[must_use]
    pub fn is_pair(self) -> bool {
        self != Self::Null
    }
}

/// The settings of the frontend itself: limits, timeouts and queues.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, from_py_object, module = "sglang.srt.rust_extensions._server")
)]
pub struct FrontendConfig {
    /// Maximum size of a request body in bytes, compressed and decompressed. A larger body is
    /// answered with 413.
    pub body_limit: usize,
    /// Time for requests in flight to finish after a shutdown begins.
    pub drain_deadline: Duration,
    /// Maximum time for the head of a request to arrive, and for its body to arrive after that.
    pub read_timeout: Duration,
    /// How long `/health_generate` waits for a frame of the scheduler.
    pub health_timeout: Duration,
    /// Whether `/health_generate` sends a probe to the scheduler.
    pub health_generation: bool,
    /// Maximum age of the scheduler's last heartbeat at which `/health` reports success.
    pub heartbeat_limit: Duration,
    /// Maximum number of requests in one body; a negative number means no limit.
    pub max_requests: i64,
    /// Whether to log a line for each request.
    pub access_log: bool,
    /// Capacity of the ring to the scheduler, in messages.
    pub to_scheduler_cap: usize,
    /// Capacity of the ring from the scheduler, in frames.
    pub from_scheduler_cap: usize,
    /// Capacity of each queue between two stages, in requests, and of each answer's queue, in
    /// events.
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
            max_requests: 4096,
            access_log: false,
            to_scheduler_cap: 8192,
            from_scheduler_cap: 8192,
            stage_cap: 8192,
        }
    }
}
