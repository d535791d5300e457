//! What Python tells the frontend at start. Everything is named, and all of
//! `ServerArgs` and `ModelConfig` has to be said.

use std::{collections::BTreeMap, time::Duration};

use pyo3::{exceptions::PyValueError, prelude::*};
use serde_json::{Map, Value};

use crate::config;

/// Which half of a disaggregated pair a server is.
#[pyclass(
    eq,
    eq_int,
    frozen,
    from_py_object,
    module = "sglang.srt.rust_extensions._server"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisaggregationMode {
    /// Not one of a pair.
    Null,
    /// The half that reads prompts.
    Prefill,
    /// The half that writes answers.
    Decode,
}

impl From<DisaggregationMode> for config::DisaggregationMode {
    fn from(mode: DisaggregationMode) -> Self {
        match mode {
            DisaggregationMode::Null => Self::Null,
            DisaggregationMode::Prefill => Self::Prefill,
            DisaggregationMode::Decode => Self::Decode,
        }
    }
}

/// Sampling parameters that come with a model.
#[pyclass(frozen, from_py_object, module = "sglang.srt.rust_extensions._server")]
#[derive(Clone, Debug)]
pub struct DefaultSamplingParams(config::DefaultSamplingParams);

#[pymethods]
impl DefaultSamplingParams {
    #[new]
    #[pyo3(signature = (*, temperature=None, top_p=None, top_k=None, min_p=None, repetition_penalty=None))]
    fn new(
        temperature: Option<f64>,
        top_p: Option<f64>,
        top_k: Option<i64>,
        min_p: Option<f64>,
        repetition_penalty: Option<f64>,
    ) -> Self {
        Self(config::DefaultSamplingParams {
            temperature,
            top_p,
            top_k,
            min_p,
            repetition_penalty,
        })
    }
}

/// What the frontend must know of a model.
#[pyclass(frozen, from_py_object, module = "sglang.srt.rust_extensions._server")]
#[derive(Clone, Debug)]
pub struct ModelConfig(config::ModelConfig);

#[pymethods]
impl ModelConfig {
    #[new]
    #[pyo3(signature = (*, context_len, vocab_size, is_multimodal, default_sampling_params))]
    fn new(
        context_len: i64,
        vocab_size: i64,
        is_multimodal: bool,
        default_sampling_params: DefaultSamplingParams,
    ) -> Self {
        Self(config::ModelConfig {
            context_len,
            vocab_size,
            is_multimodal,
            default_sampling_params: default_sampling_params.0,
        })
    }
}

/// What a serving engine says of itself to its frontend.
#[pyclass(frozen, from_py_object, module = "sglang.srt.rust_extensions._server")]
#[derive(Clone, Debug)]
pub struct ServerArgs(pub(super) config::ServerArgs);

#[pymethods]
impl ServerArgs {
    #[new]
    #[pyo3(signature = (
        *, model_path, served_model_name, tokenizer_path, revision, load_format, weight_version, host, port, log_level,
        log_level_http, chat_template, tool_call_parser, reasoning_parser, stream_response_default_include_usage,
        tokenizer_worker_num, detokenizer_worker_num, skip_tokenizer_init, incremental_streaming_output,
        disaggregation_mode, model_config, preferred_sampling_params, limit_mm_data_per_request, allow_auto_truncate,
        enable_return_hidden_states, num_reserved_tokens, version, max_total_num_tokens,
    ))]
    #[expect(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "each is a setting of its own, and is given by name"
    )]
    fn new(
        model_path: String,
        served_model_name: String,
        tokenizer_path: Option<String>,
        revision: Option<String>,
        load_format: String,
        weight_version: String,
        host: String,
        port: u16,
        log_level: String,
        log_level_http: Option<String>,
        chat_template: Option<String>,
        tool_call_parser: Option<String>,
        reasoning_parser: Option<String>,
        stream_response_default_include_usage: bool,
        tokenizer_worker_num: usize,
        detokenizer_worker_num: usize,
        skip_tokenizer_init: bool,
        incremental_streaming_output: bool,
        disaggregation_mode: DisaggregationMode,
        model_config: ModelConfig,
        preferred_sampling_params: Option<&str>,
        limit_mm_data_per_request: BTreeMap<String, i64>,
        allow_auto_truncate: bool,
        enable_return_hidden_states: bool,
        num_reserved_tokens: i64,
        version: String,
        max_total_num_tokens: i64,
    ) -> PyResult<Self> {
        Ok(Self(config::ServerArgs {
            model_path,
            served_model_name,
            tokenizer_path,
            revision,
            load_format,
            weight_version,
            host,
            port,
            log_level,
            log_level_http,
            chat_template,
            tool_call_parser,
            reasoning_parser,
            stream_response_default_include_usage,
            tokenizer_worker_num,
            detokenizer_worker_num,
            skip_tokenizer_init,
            incremental_streaming_output,
            disaggregation_mode: disaggregation_mode.into(),
            model_config: model_config.0,
            preferred_sampling_params: preferred_sampling_params.map(preferred).transpose()?,
            limit_mm_data_per_request,
            allow_auto_truncate,
            enable_return_hidden_states,
            num_reserved_tokens,
            version,
            max_total_num_tokens,
        }))
    }
}

fn preferred(json: &str) -> PyResult<Map<String, Value>> {
    serde_json::from_str(json).map_err(|error| {
        PyValueError::new_err(format!(
            "preferred_sampling_params is no JSON object: {error}"
        ))
    })
}

/// How the frontend itself behaves; every setting has a default.
#[pyclass(frozen, from_py_object, module = "sglang.srt.rust_extensions._server")]
#[derive(Clone, Debug, Default)]
pub struct FrontendConfig(pub(super) config::FrontendConfig);

#[pymethods]
impl FrontendConfig {
    #[new]
    #[pyo3(signature = (
        *, body_limit=None, drain_deadline=None, read_timeout=None, health_timeout=None, health_generation=None,
        heartbeat_limit=None, most_requests=None, access_log=None,
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a setting of its own, and is given by name"
    )]
    fn new(
        body_limit: Option<usize>,
        drain_deadline: Option<f64>,
        read_timeout: Option<f64>,
        health_timeout: Option<f64>,
        health_generation: Option<bool>,
        heartbeat_limit: Option<f64>,
        most_requests: Option<i64>,
        access_log: Option<bool>,
    ) -> PyResult<Self> {
        let defaults = config::FrontendConfig::default();
        Ok(Self(config::FrontendConfig {
            body_limit: body_limit.unwrap_or(defaults.body_limit),
            drain_deadline: seconds("drain_deadline", drain_deadline, defaults.drain_deadline)?,
            read_timeout: seconds("read_timeout", read_timeout, defaults.read_timeout)?,
            health_timeout: seconds("health_timeout", health_timeout, defaults.health_timeout)?,
            health_generation: health_generation.unwrap_or(defaults.health_generation),
            heartbeat_limit: seconds("heartbeat_limit", heartbeat_limit, defaults.heartbeat_limit)?,
            most_requests: most_requests.unwrap_or(defaults.most_requests),
            access_log: access_log.unwrap_or(defaults.access_log),
            ..defaults
        }))
    }
}

/// A time that passes before clocks end: about 30 years.
const MOST: Duration = Duration::from_secs(1_000_000_000);

/// `given` seconds, if it is a time that can pass.
pub(super) fn seconds(name: &str, given: Option<f64>, default: Duration) -> PyResult<Duration> {
    let Some(given) = given else {
        return Ok(default);
    };
    let time = Duration::try_from_secs_f64(given).ok();
    time.filter(|time| *time <= MOST).ok_or_else(|| {
        let most = MOST.as_secs();
        PyValueError::new_err(format!(
            "{name} must be a number of seconds up to {most}, not {given}"
        ))
    })
}
