//! The extension module `_server`: the frontend as the scheduler's thread has it.
//!
//! Invariant: whatever waits or works lets the interpreter go, and no error of the
//! server's own becomes a panic here. Nothing of the process is changed: no signal
//! handler, no logger.

mod args;
mod server;

use pyo3::prelude::*;

pub use args::{
    DefaultSamplingParams, DisaggregationMode, FrontendConfig, ModelConfig, ServerArgs,
};
pub use server::{RequestBatch, Server};

/// Adds every class of the border but [`Server`] to `module`: an extension of this crate
/// adds a server of its own.
///
/// # Errors
///
/// When the module does not take them.
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
    module.add_class::<Server>()
}
