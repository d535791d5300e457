//! Keyword arguments of a class whose settings are the fields of one Rust struct.
//!
//! `#[derive(FromPyObject)]` reads a struct from a mapping, but ignores keys that it does not
//! know and wraps every error in a `TypeError`. [`read_keywords`] adds the rules of a Python
//! call: a missing or an unknown argument is a `TypeError` that names the argument, and a wrong
//! value raises the error of its own conversion.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use pyo3::{conversion::FromPyObjectOwned, exceptions::PyTypeError, prelude::*, types::PyDict};

/// The arguments of a call, as a mapping that records which keys were read.
#[pyclass(frozen)]
struct Keywords {
    class: &'static str,
    given: Py<PyDict>,
    read: Mutex<HashSet<String>>,
}

#[pymethods]
impl Keywords {
    fn __getitem__<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyAny>> {
        let given = self.given.bind(py).get_item(&name)?;
        let value = given.ok_or_else(|| {
            let class = self.class;
            PyTypeError::new_err(format!("{class}() needs the keyword argument '{name}'"))
        });
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(name);
        value
    }
}

impl Keywords {
    fn check_all_were_read(&self, py: Python<'_>) -> PyResult<()> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        for name in self.given.bind(py).keys() {
            let name: String = name.extract()?;
            if !read.contains(&name) {
                let class = self.class;
                let message = format!("{class}() got an unexpected keyword argument '{name}'");
                return Err(PyTypeError::new_err(message));
            }
        }
        Ok(())
    }
}

/// Reads the fields of `T` from the keyword arguments of the constructor of `class`.
pub(super) fn read_keywords<'py, T: FromPyObjectOwned<'py>>(
    class: &'static str,
    given: Bound<'py, PyDict>,
) -> PyResult<T> {
    let py = given.py();
    let keywords = Keywords {
        class,
        given: given.unbind(),
        read: Mutex::default(),
    };
    let keywords = Bound::new(py, keywords)?;
    let value = keywords.as_any().extract::<T>().map_err(|error| {
        let error: PyErr = error.into();
        // The derived code wraps the error of a conversion in one that names only the field.
        match error.cause(py) {
            Some(cause) => {
                // `add_note` is new in Python 3.11; without it the note is lost.
                let _ = cause
                    .value(py)
                    .call_method1("add_note", (error.to_string(),));
                cause
            }
            None => error,
        }
    })?;
    keywords.get().check_all_were_read(py)?;
    Ok(value)
}
