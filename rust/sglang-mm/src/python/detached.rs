//! Runs Rust code while detached from the Python interpreter.
//!
//! Invariant: Python gets a value or an `Exception`. `PyO3` turns a panic into a
//! `BaseException`, which `except Exception` does not catch and which would end a server's
//! worker; here it becomes a `RuntimeError`.

use pyo3::{exceptions::PyRuntimeError, marker::Ungil, prelude::*};

use crate::common::{panics::caught, par};

/// Calls `work` while detached, so that other Python threads can run, and returns its result.
pub(super) fn detached<T, F>(py: Python<'_>, work: F) -> PyResult<T>
where
    T: Ungil + Send,
    F: Ungil + Send + FnOnce() -> T,
{
    // Read before detaching: afterwards other Python threads may change the environment.
    par::read_environment();
    py.detach(|| caught(work))
        .map_err(|panic| PyRuntimeError::new_err(panic.to_string()))
}

#[cfg(test)]
mod tests {
    use super::detached;
    use pyo3::{exceptions::PyException, prelude::*};

    #[test]
    fn panics_become_exceptions() {
        Python::initialize();
        Python::attach(|py| {
            assert_eq!(3, detached(py, || 3).unwrap());
            let number = 7;
            let error = detached(py, || panic!("the number {number}")).map(|()| 0);
            let error = error.unwrap_err();
            assert!(error.is_instance_of::<PyException>(py));
            assert_eq!(
                "RuntimeError: bug in sglang-mm: the number 7",
                error.to_string()
            );
        });
    }
}
