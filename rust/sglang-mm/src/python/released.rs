//! Work without the interpreter.
//!
//! Invariant: whatever happens inside, Python sees a value or an `Exception`. Left to
//! itself a panic would become a `BaseException`, which `except Exception` lets pass and
//! which ends a server's worker.

use pyo3::{exceptions::PyRuntimeError, marker::Ungil, prelude::*};

use crate::common::{panics::caught, par};

/// What `work` returns, computed while other Python threads run.
pub(super) fn released<T, F>(py: Python<'_>, work: F) -> PyResult<T>
where
    T: Ungil + Send,
    F: Ungil + Send + FnOnce() -> T,
{
    // Python's other threads may change the environment as soon as they run.
    par::read_environment();
    py.detach(|| caught(work))
        .map_err(|panic| PyRuntimeError::new_err(panic.to_string()))
}

#[cfg(test)]
mod tests {
    use super::released;
    use pyo3::{exceptions::PyException, prelude::*};

    #[test]
    fn panics_become_exceptions() {
        Python::initialize();
        Python::attach(|py| {
            assert_eq!(3, released(py, || 3).unwrap());
            let number = 7;
            let error = released(py, || panic!("the number {number}")).map(|()| 0);
            let error = error.unwrap_err();
            assert!(error.is_instance_of::<PyException>(py));
            assert_eq!(
                "RuntimeError: bug in sglang-mm: the number 7",
                error.to_string()
            );
        });
    }
}
