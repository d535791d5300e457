//! Converts Python arguments: encoded bytes and lists.
//!
//! Invariant: converted arguments can be read while detached from the interpreter. Immutable
//! `bytes` are borrowed; everything else is copied, because another thread may write to it.
//! Lengths that an object reports about itself are not trusted. A copy that does not fit in
//! memory is an error.

use std::ops::Deref;

use pyo3::{
    conversion::FromPyObjectOwned,
    exceptions::{PyMemoryError, PyTypeError},
    prelude::*,
    pybacked::PyBackedBytes,
    types::{PyByteArray, PyDict, PyMemoryView, PySequence, PyString},
};

use crate::common::excerpt::excerpt;

/// An encoded file: `bytes`, `bytearray`, a `memoryview`, or a sequence of small ints.
pub(super) enum Encoded {
    Borrowed(PyBackedBytes),
    Copied(Vec<u8>),
}

impl Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<'py> FromPyObject<'_, 'py> for Encoded {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        // One copy; the sequence path below would extract the items one by one.
        if object.is_instance_of::<PyMemoryView>() || object.is_instance_of::<PyByteArray>() {
            let bytes = PyMemoryView::from(&object)?.call_method0("tobytes")?;
            return Ok(Self::Borrowed(bytes.extract()?));
        }
        match object.extract() {
            Ok(bytes) => Ok(Self::Borrowed(bytes)),
            Err(error) if object.is_instance_of::<PyString>() => Err(error.into()),
            Err(_) => Ok(Self::Copied(extract_items(
                object.cast::<PySequence>()?.as_any(),
            )?)),
        }
    }
}

/// The items of a list, a tuple, an array or another indexable iterable, in order.
///
/// `PyO3`'s own conversion to `Vec` reserves memory for the reported length, which may be wrong.
pub(super) struct Items<T>(pub(super) Vec<T>);

impl<'py, T: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for Items<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let unordered = object.is_instance_of::<PyDict>() || !object.hasattr("__getitem__")?;
        if unordered || object.is_instance_of::<PyString>() {
            let kind = excerpt(object.get_type());
            return Err(PyTypeError::new_err(format!("expected a list, got {kind}")));
        }
        Ok(Self(extract_items(&object)?))
    }
}

/// Extracts the items one by one. The reported length of a sequence is not used to reserve
/// memory, because it may be wrong and larger than the memory.
fn extract_items<'py, T: FromPyObjectOwned<'py>>(sequence: &Bound<'py, PyAny>) -> PyResult<Vec<T>> {
    let mut items = Vec::new();
    for item in sequence.try_iter()? {
        let item = item?.extract().map_err(Into::into)?;
        items.try_reserve(1).map_err(|_| out_of_memory())?;
        items.push(item);
    }
    Ok(items)
}

fn out_of_memory() -> PyErr {
    PyMemoryError::new_err("the argument does not fit in memory")
}
