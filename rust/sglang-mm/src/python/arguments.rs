//! Converts Python arguments: encoded bytes, images and lists.
//!
//! Invariant: converted arguments can be read while detached from the interpreter. Immutable
//! `bytes` are borrowed; everything else is copied, because another thread may write to it.
//! Lengths and bases that an object reports about itself are not trusted. A copy that does
//! not fit in memory is an error.

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

/// A (height, width, 3) uint8 array in C order.
pub(super) struct Image {
    pub(super) pixels: Pixels,
    pub(super) size: Size,
}

/// The pixels of an array, row by row.
pub(super) enum Pixels {
    /// The array is a view of `bytes`, as arrays of Pillow images are.
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
        // Before the shape is read: the lookup may run code of a subclass, which may change the
        // array.
        let owner = base_bytes(&object);
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
        // `as_slice` would also accept Fortran order, whose axes are swapped.
        if !array.is_c_contiguous() {
            return Err(PyValueError::new_err(
                "expected contiguous RGB: pass the image through numpy.ascontiguousarray",
            ));
        }
        let pixels = array.as_slice()?;
        Ok(Self {
            pixels: match owner.and_then(|owner| borrow_pixels(owner, pixels)) {
                Some(pixels) => pixels,
                None => Pixels::Copied(copy_pixels(pixels)?),
            },
            size: Size { height, width },
        })
    }
}

fn copy_pixels(pixels: &[u8]) -> PyResult<Vec<u8>> {
    let mut copy = empty(pixels.len()).map_err(|OutOfMemory| out_of_memory())?;
    copy.extend_from_slice(pixels);
    Ok(copy)
}

/// The maximum number of arrays between an image and the `bytes` that it is a view of. `NumPy`
/// skips intermediate views, so there are few. A subclass may report an endless chain.
const MAX_VIEWS: usize = 16;

/// The `bytes` that an array reports as its base.
fn base_bytes(array: &Bound<'_, PyAny>) -> Option<PyBackedBytes> {
    let mut base = array.getattr("base").ok()?;
    for _ in 0..MAX_VIEWS {
        if !base.is_instance_of::<PyUntypedArray>() {
            break;
        }
        base = base.getattr("base").ok()?;
    }
    Some(base.cast_into_exact::<PyBytes>().ok()?.into())
}

/// Borrows the `pixels` of an array if their addresses are inside `owner`.
///
/// The base that an array reports may be wrong, so the addresses are compared.
fn borrow_pixels(owner: PyBackedBytes, pixels: &[u8]) -> Option<Pixels> {
    let start = (pixels.as_ptr() as usize).checked_sub(owner.as_ptr() as usize)?;
    let range = start..start.checked_add(pixels.len())?;
    (range.end <= owner.len()).then_some(Pixels::Borrowed { owner, range })
}
