//! The extension module `_server`, with which the scheduler's thread uses the frontend.
//!
//! Invariant: every call that waits releases the GIL, and no error of the server becomes a
//! panic. Importing the module changes nothing in the process: it installs no signal handler
//! and no logger.

mod args;
mod keywords;
mod server;

use pyo3::{exceptions::PyValueError, prelude::*};

use crate::logging;

pub use crate::config::{DefaultSamplingParams, DisaggregationMode, FrontendConfig, ModelConfig};
pub use args::ServerArgs;
pub(crate) use args::json_object;
pub use server::{RequestBatch, Server};

/// Adds every class except [`Server`] to `module`. A crate that builds on this one adds a server
/// class of its own.
///
/// # Errors
///
/// When a class cannot be added.
///
/// # Example
///
/// The extension module of a Python package that provides models:
///
/// ```no_run
/// use pyo3::prelude::*;
/// use sglang_server::python::{Log, Server, register_boundary_types, set_up_logging};
///
/// #[pymodule]
/// fn _server(module: &Bound<'_, PyModule>) -> PyResult<()> {
///     register_boundary_types(module)?;
///     module.add_class::<Server>()?;
///     module.add_class::<Log>()?;
///     module.add_function(wrap_pyfunction!(set_up_logging, module)?)
/// }
/// ```
pub fn register_boundary_types(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<DefaultSamplingParams>()?;
    module.add_class::<DisaggregationMode>()?;
    module.add_class::<FrontendConfig>()?;
    module.add_class::<ModelConfig>()?;
    module.add_class::<RequestBatch>()?;
    module.add_class::<ServerArgs>()
}

/// An HTTP frontend between clients and a scheduler.
#[pymodule]
fn _server(module: &Bound<'_, PyModule>) -> PyResult<()> {
    register_boundary_types(module)?;
    module.add_class::<Server>()?;
    module.add_class::<Log>()?;
    module.add_function(wrap_pyfunction!(set_up_logging, module)?)
}

/// The log of this process. Dropping it writes the buffered lines and ends the log.
#[pyclass(frozen, module = "sglang.srt.rust_extensions._server")]
pub struct Log(#[expect(dead_code, reason = "only its drop matters")] logging::Log);

/// Writes the log to stderr. Only the program that serves calls this; an import sets up no log.
///
/// # Errors
///
/// `ValueError` when `level` is invalid or the process already has a log.
#[pyfunction]
#[pyo3(signature = (level="info"))]
pub fn set_up_logging(level: &str) -> PyResult<Log> {
    let log = logging::set_up(level);
    log.map(Log)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}
