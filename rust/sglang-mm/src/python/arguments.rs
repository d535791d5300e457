//! What Python may pass for encoded bytes, for images and for lists of things.
//!
//! Invariant: what comes out can be read without the interpreter: immutable `bytes` are
//! borrowed, everything else is copied, because another thread may write to it. What an
//! object *says* of itself is never relied on, and a copy that does not fit is an error.

use std::ops::{Deref, Range};

use numpy::{PyReadonlyArray3, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::{
    conversion::FromPyObjectOwned,
    exceptions::{PyMemoryError, PyTypeError, PyValueError},
    prelude::*,
    pybacked::PyBackedBytes,
    types::{PyByteArray, PyBytes, PyDict, PyMemoryView, PySequence, PyString},
};

use crate::common::{
    Size,
    excerpt::excerpt,
    memory::{OutOfMemory, empty},
};

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
        // Copied whole, where the sequence path would go through the items one by one.
        if object.is_instance_of::<PyMemoryView>() || object.is_instance_of::<PyByteArray>() {
            let bytes = PyMemoryView::from(&object)?.call_method0("tobytes")?;
            return Ok(Self::Borrowed(bytes.extract()?));
        }
        match object.extract() {
            Ok(bytes) => Ok(Self::Borrowed(bytes)),
            Err(error) if object.is_instance_of::<PyString>() => Err(error.into()),
            Err(_) => Ok(Self::Copied(items(object.cast::<PySequence>()?.as_any())?)),
        }
    }
}

/// A list, a tuple, an array: what has places, and gives its items in order.
///
/// pyo3's own `Vec` asks how many items there are and takes room for as many.
pub(super) struct Many<T>(pub(super) Vec<T>);

impl<'py, T: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for Many<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let unordered = object.is_instance_of::<PyDict>() || !object.hasattr("__getitem__")?;
        if unordered || object.is_instance_of::<PyString>() {
            let kind = excerpt(object.get_type());
            return Err(PyTypeError::new_err(format!("expected a list, got {kind}")));
        }
        Ok(Self(items(&object)?))
    }
}

/// The items one by one: room for as many as a sequence *says* it has may be more than there is.
fn items<'py, T: FromPyObjectOwned<'py>>(sequence: &Bound<'py, PyAny>) -> PyResult<Vec<T>> {
    let mut items = Vec::new();
    for item in sequence.try_iter()? {
        let item = item?.extract().map_err(Into::into)?;
        items.try_reserve(1).map_err(|_| too_large())?;
        items.push(item);
    }
    Ok(items)
}

fn too_large() -> PyErr {
    PyMemoryError::new_err("the argument does not fit in memory")
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
        // First, because a subclass may run code in it, which may change the array.
        let owner = owner(&object);
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
            pixels: match owner.and_then(|owner| borrowed(owner, pixels)) {
                Some(pixels) => pixels,
                None => Pixels::Copied(copied(pixels)?),
            },
            size: Size { height, width },
        })
    }
}

fn copied(pixels: &[u8]) -> PyResult<Vec<u8>> {
    let mut copy = empty(pixels.len()).map_err(|OutOfMemory| too_large())?;
    copy.extend_from_slice(pixels);
    Ok(copy)
}

/// Most arrays between an image and the `bytes` that it looks into. `NumPy` skips views of its own,
/// so there are few; a subclass may claim to have no end of them.
const MOST_VIEWS: usize = 16;

/// The `bytes` that an array says it looks into.
fn owner(array: &Bound<'_, PyAny>) -> Option<PyBackedBytes> {
    let mut base = array.getattr("base").ok()?;
    for _ in 0..MOST_VIEWS {
        if !base.is_instance_of::<PyUntypedArray>() {
            break;
        }
        base = base.getattr("base").ok()?;
    }
    Some(base.cast_into_exact::<PyBytes>().ok()?.into())
}

/// The `pixels` of an array without a copy, if they lie in `owner`.
///
/// What an array *says* of its base may be wrong; the addresses are not.
fn borrowed(owner: PyBackedBytes, pixels: &[u8]) -> Option<Pixels> {
    let start = (pixels.as_ptr() as usize).checked_sub(owner.as_ptr() as usize)?;
    let range = start..start.checked_add(pixels.len())?;
    (range.end <= owner.len()).then_some(Pixels::Borrowed { owner, range })
}
