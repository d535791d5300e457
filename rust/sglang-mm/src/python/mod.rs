//! The Python bindings of this crate: convert arguments, results and errors, and detach from
//! the interpreter while Rust works.
//!
//! Only the files of this folder use `pyo3`, and they contain no image processing.
//! Every function borrows or copies its arguments, detaches from the interpreter and calls Rust.
//! A returned array owns the memory that Rust allocated for it.
//!
//! Invariant: a panic becomes a `RuntimeError`. No memory that Python code can modify is read
//! while detached.

mod arguments;
mod arrays;
mod common;
mod detached;
mod dsv41;
mod inkling;
mod qwen_vl;

use pyo3::{exceptions::PyValueError, prelude::*};

/// Media preprocessing for multimodal models, with the same bytes as Pillow.
#[pymodule]
fn _multimodal(module: &Bound<'_, PyModule>) -> PyResult<()> {
    common::register(&submodule(module, "common")?)?;
    dsv41::register(&submodule(module, "dsv41")?)?;
    inkling::register(&submodule(module, "inkling")?)?;
    qwen_vl::register(&submodule(module, "qwen_vl")?)
}

/// Attaches a submodule so that it can be imported as an attribute *and* by its path.
///
/// An import by path looks up the full name in `sys.modules`. The full name depends on the
/// name under which Python imports the parent, so it is known only at import time.
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

/// A `ValueError` with the message of the Rust error.
fn value_error(error: impl std::error::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}
