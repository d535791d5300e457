//! The constructors of the settings classes. All arguments are keywords, and every field of
//! `ServerArgs` and `ModelConfig` is required.

use std::time::Duration;

use pyo3::{exceptions::PyValueError, prelude::*, types::PyDict};
use serde_json::{Map, Value};

use super::keywords::read_keywords;
use crate::config::{self, DefaultSamplingParams, FrontendConfig, ModelConfig};

/// The settings of the serving engine: the fields of [`config::ServerArgs`], as keywords.
#[pyclass(frozen, from_py_object, module = "sglang.srt.rust_extensions._server")]
#[derive(Clone, Debug)]
pub struct ServerArgs(pub(super) config::ServerArgs);

#[pymethods]
impl ServerArgs {
    #[new]
    #[pyo3(signature = (**settings))]
    fn new(py: Python<'_>, settings: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        let settings = settings.unwrap_or_else(|| PyDict::new(py));
        read_keywords("ServerArgs", settings).map(Self)
    }
}

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
        Self {
            context_len,
            vocab_size,
            is_multimodal,
            default_sampling_params,
        }
    }
}

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
        Self {
            temperature,
            top_p,
            top_k,
            min_p,
            repetition_penalty,
        }
    }
}

// The three queue capacities of `FrontendConfig` are arguments of `Server` in Python.
#[pymethods]
impl FrontendConfig {
    #[new]
    #[pyo3(signature = (
        *, body_limit=None, drain_deadline=None, read_timeout=None, health_timeout=None, health_generation=None,
        heartbeat_limit=None, max_requests=None, access_log=None,
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is an independent setting and is passed by name"
    )]
    fn new(
        body_limit: Option<usize>,
        drain_deadline: Option<f64>,
        read_timeout: Option<f64>,
        health_timeout: Option<f64>,
        health_generation: Option<bool>,
        heartbeat_limit: Option<f64>,
        max_requests: Option<i64>,
        access_log: Option<bool>,
    ) -> PyResult<Self> {
        let defaults = Self::default();
        Ok(Self {
            body_limit: body_limit.unwrap_or(defaults.body_limit),
            drain_deadline: seconds("drain_deadline", drain_deadline, defaults.drain_deadline)?,
            read_timeout: seconds("read_timeout", read_timeout, defaults.read_timeout)?,
            health_timeout: seconds("health_timeout", health_timeout, defaults.health_timeout)?,
            health_generation: health_generation.unwrap_or(defaults.health_generation),
            heartbeat_limit: seconds("heartbeat_limit", heartbeat_limit, defaults.heartbeat_limit)?,
            max_requests: max_requests.unwrap_or(defaults.max_requests),
            access_log: access_log.unwrap_or(defaults.access_log),
            ..defaults
        })
    }
}

/// Parses `preferred_sampling_params`, which Python passes as JSON text.
pub(crate) fn json_object(text: &Bound<'_, PyAny>) -> PyResult<Option<Map<String, Value>>> {
    let text: Option<String> = text.extract()?;
    let object = text.map(|text| serde_json::from_str(&text)).transpose();
    object.map_err(|error| {
        let message = format!("preferred_sampling_params is not a JSON object: {error}");
        PyValueError::new_err(message)
    })
}

/// Maximum time, about 30 years. Adding it to the current time does not overflow.
const MAX_TIME: Duration = Duration::from_secs(1_000_000_000);

/// Converts `given` seconds to a duration; `None` means `default`.
pub(super) fn seconds(name: &str, given: Option<f64>, default: Duration) -> PyResult<Duration> {
    let Some(given) = given else {
        return Ok(default);
    };
    let time = Duration::try_from_secs_f64(given).ok();
    time.filter(|time| *time <= MAX_TIME).ok_or_else(|| {
        let most = MAX_TIME.as_secs();
        PyValueError::new_err(format!(
            "{name} must be a number of seconds from 0 to {most}, not {given}"
        ))
    })
}
