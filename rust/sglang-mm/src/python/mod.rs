//! The Python face of this crate: arguments in, errors out, interpreter released.
//!
//! Only the files of this folder name `pyo3` or `numpy`, and they decide nothing about
//! images. Every function copies or borrows what it needs, lets go of the interpreter,
//! works, and hands over an array that owns what Rust allocated.
//!
//! Invariant: a panic becomes a `RuntimeError`, and nothing that Python may change is
//! read while the interpreter is released.

mod arguments;
mod common;
mod dsv41;
mod inkling;
mod qwen_vl;
mod released;

use pyo3::{exceptions::PyValueError, prelude::*};

/// Media preprocessing for multimodal models, exact to Pillow's bytes.
#[pymodule]
fn _multimodal(module: &Bound<'_, PyModule>) -> PyResult<()> {
    common::register(&submodule(module, "common")?)?;
    dsv41::register(&submodule(module, "dsv41")?)?;
    inkling::register(&submodule(module, "inkling")?)?;
    qwen_vl::register(&submodule(module, "qwen_vl")?)
}

/// Attaches a submodule so that it can be imported as an attribute *and* by its path.
///
/// The second form asks `sys.modules` for the full name, and the full name is known
/// only now: it is the name under which Python imports the parent.
fn submodule<'py>(parent: &Bound<'py, PyModule>, name: &str) -> PyResult<Bound<'py, PyModule>> {
    let py = parent.py();
    let path = format!("{}.{name}", parent.name()?);
    let child = PyModule::new(py, &path)?;
    parent.add(name, &child)?;
    py.import("sys")?
        .getattr("modules")?
        .set_item(path, &child)?;
    Ok(child)
}

/// What callers did wrong, in the words of the Rust error.
fn value_error(error: impl std::error::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}
