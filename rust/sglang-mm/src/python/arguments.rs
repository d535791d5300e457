//! What Python may pass for encoded bytes and for images.
//!
//! Invariant: what comes out can be read without the interpreter: immutable `bytes` are
//! borrowed, everything else is copied, because another thread may write to it.

use std::ops::{Deref, Range};

use numpy::{PyReadonlyArray3, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    pybacked::PyBackedBytes,
    types::{PyBytes, PyMemoryView, PySequence, PyString},
};

use crate::common::Size;

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
        // The sequence path would go through its items one by one.
        if object.is_instance_of::<PyMemoryView>() {
            let bytes = object.call_method0("tobytes")?;
            return Ok(Self::Borrowed(bytes.extract()?));
        }
        match object.extract() {
            Ok(bytes) => Ok(Self::Borrowed(bytes)),
            Err(error) if object.is_instance_of::<PyString>() => Err(error.into()),
            Err(_) => Ok(Self::Copied(items(
                &object.cast::<PySequence>()?.to_owned(),
            )?)),
        }
    }
}

/// The items one by one: room for as many as a sequence *says* it has may be more than there is.
fn items(sequence: &Bound<'_, PySequence>) -> PyResult<Vec<u8>> {
    sequence.try_iter()?.map(|item| item?.extract()).collect()
}

/// A (height, width, 3) uint8 array in C order.
pub(super) struct Image {
    pub(super) pixels: Pixels,
    pub(super) size: Size,
}

/// The pixels of an array, row by row.
pub(super) enum Pixels {
    /// Those of an array that looks into `bytes`, as Pillow's do.
    Borrowed {
        owner: PyBackedBytes,
        range: Range<usize>,
    },
    Copied(Vec<u8>),
}

impl Deref for Pixels {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed { owner, range } => &owner[range.clone()],
            Self::Copied(pixels) => pixels,
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Image {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let array: PyReadonlyArray3<'_, u8> = object
            .extract()
            .map_err(|_| PyTypeError::new_err("expected a uint8 array of three dimensions"))?;
        let &[height, width, channels] = array.shape() else {
            unreachable!("the type has three dimensions")
        };
        if channels != 3 {
            return Err(PyValueError::new_err(format!(
                "expected HWC RGB, an image of shape (height, width, 3), got ({height}, {width}, {channels})"
            )));
        }
        // `as_slice` would also take Fortran order, and mix up the axes.
        if !array.is_c_contiguous() {
            return Err(PyValueError::new_err(
                "expected contiguous RGB: pass the image through numpy.ascontiguousarray",
            ));
        }
        let pixels = array.as_slice()?;
        Ok(Self {
            pixels: borrowed(&object, pixels).unwrap_or_else(|| Pixels::Copied(pixels.to_vec())),
            size: Size { height, width },
        })
    }
}

/// The `pixels` of an array without a copy, if they lie in a `bytes` object.
///
/// What an array *says* of its base may be wrong; the addresses are not.
fn borrowed(array: &Bound<'_, PyAny>, pixels: &[u8]) -> Option<Pixels> {
    let mut base = array.getattr("base").ok()?;
    while base.is_instance_of::<PyUntypedArray>() {
        base = base.getattr("base").ok()?;
    }
    let owner = PyBackedBytes::from(base.cast_into_exact::<PyBytes>().ok()?);
    let start = (pixels.as_ptr() as usize).checked_sub(owner.as_ptr() as usize)?;
    let range = start..start.checked_add(pixels.len())?;
    (range.end <= owner.len()).then_some(Pixels::Borrowed { owner, range })
}
