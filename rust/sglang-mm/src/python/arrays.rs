//! Exchanges arrays with `NumPy` by its public protocols: results become arrays without a copy,
//! and images are read from arrays.
//!
//! `NumPy`'s C interface is not used: the crate for it depends on a linear algebra library, which
//! would take a tenth of this module's compile time.
//!
//! Invariant: the memory of a result is freed when the last array that uses it is gone. Until
//! then Rust does not access it. An address that an array reports is never read from: pixels are
//! read from `bytes` objects, within their bounds.

use std::ops::{Deref, Range};

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    pybacked::PyBackedBytes,
    sync::PyOnceLock,
    types::{PyBytes, PyDict, PyMemoryView, PyType},
};

use crate::common::Size;

/// The element type of a result.
pub(super) trait Element: Send + Sync + 'static {
    /// Its name in the array interface protocol, without the byte order.
    const KIND: &'static str;
}

impl Element for u8 {
    const KIND: &'static str = "u1";
}

impl Element for u16 {
    const KIND: &'static str = "u2";
}

impl Element for i64 {
    const KIND: &'static str = "i8";
}

impl Element for f32 {
    const KIND: &'static str = "f4";
}

/// Moves `values` into a writable array of one dimension. The values are not copied.
pub(super) fn into_array<T: Element>(py: Python<'_>, values: Vec<T>) -> PyResult<Bound<'_, PyAny>> {
    static AS_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    AS_ARRAY
        .import(py, "numpy", "asarray")?
        .call1((Memory::new(values),))
}

/// The memory of a result. The array that `NumPy` makes from it keeps it alive.
#[pyclass(frozen, module = "sglang.srt.rust_extensions._multimodal")]
struct Memory {
    address: usize,
    length: usize,
    kind: &'static str,
    /// Owns the memory at `address`. It is never read, only dropped.
    _values: Box<dyn Send + Sync>,
}

impl Memory {
    fn new<T: Element>(mut values: Vec<T>) -> Self {
        Self {
            // From here on the values are accessed through this address only.
            address: values.as_mut_ptr().expose_provenance(),
            length: values.len(),
            kind: T::KIND,
            _values: Box::new(values),
        }
    }
}

#[pymethods]
impl Memory {
    /// As version 3 of "The array interface protocol" in the documentation of `NumPy` defines it.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let order = if cfg!(target_endian = "big") {
            '>'
        } else {
            '<'
        };
        let read_only = false;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.length,))?;
        interface.set_item("typestr", format!("{order}{}", self.kind))?;
        interface.set_item("data", (self.address, read_only))?;
        Ok(interface)
    }
}

/// A (height, width, 3) uint8 array in C order.
pub(super) struct Image {
    pub(super) pixels: Pixels,
    pub(super) size: Size,
}

/// The pixels of an array, row by row.
pub(super) struct Pixels {
    owner: PyBackedBytes,
    range: Range<usize>,
}

impl Deref for Pixels {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.owner[self.range.clone()]
    }
}

impl<'py> FromPyObject<'_, 'py> for Image {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if !object.is_instance(array_type(object.py())?)? {
            return Err(not_an_image());
        }
        // The base is looked up before the shape is read, because the lookup may run code of a
        // subclass, which may change the array.
        let owner = base_bytes(&object);
        // The view also keeps the array's memory where it is.
        let view = PyMemoryView::from(&object).map_err(|_| not_an_image())?;
        let size = size_of(&view)?;
        let pixels = match owner.and_then(|owner| borrow_pixels(owner, &object, size)) {
            Some(pixels) => pixels,
            None => copy_pixels(&view)?,
        };
        Ok(Self { pixels, size })
    }
}

fn not_an_image() -> PyErr {
    PyTypeError::new_err("expected a uint8 array of three dimensions")
}

fn array_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    ARRAY.import(py, "numpy", "ndarray")
}

/// The size of the image that a view shows.
fn size_of(view: &Bound<'_, PyMemoryView>) -> PyResult<Size> {
    let shape: Vec<usize> = view.getattr("shape")?.extract()?;
    let &[height, width, channels] = shape.as_slice() else {
        return Err(not_an_image());
    };
    if view.getattr("format")?.extract::<String>()? != "B" {
        return Err(not_an_image());
    }
    if channels != 3 {
        return Err(PyValueError::new_err(format!(
            "expected HWC RGB, an image of shape (height, width, 3), got ({height}, {width}, {channels})"
        )));
    }
    // An array in Fortran order is contiguous as well, but its axes are swapped.
    if !view.getattr("c_contiguous")?.extract::<bool>()? {
        return Err(PyValueError::new_err(
            "expected contiguous RGB: pass the image through numpy.ascontiguousarray",
        ));
    }
    Ok(Size { height, width })
}

fn copy_pixels(view: &Bound<'_, PyMemoryView>) -> PyResult<Pixels> {
    let owner: PyBackedBytes = view.call_method0("tobytes")?.extract()?;
    let range = 0..owner.len();
    Ok(Pixels { owner, range })
}

/// The maximum number of arrays between an image and the `bytes` that it is a view of. `NumPy`
/// skips intermediate views, so there are few. A subclass may report an endless chain.
const MAX_VIEWS: usize = 16;

/// The `bytes` that an array reports as its base.
fn base_bytes(array: &Bound<'_, PyAny>) -> Option<PyBackedBytes> {
    let array_type = array_type(array.py()).ok()?;
    let mut base = array.getattr("base").ok()?;
    for _ in 0..MAX_VIEWS {
        if !base.is_instance(array_type).ok()? {
            break;
        }
        base = base.getattr("base").ok()?;
    }
    Some(base.cast_into_exact::<PyBytes>().ok()?.into())
}

/// Borrows the pixels of an array if they are inside `owner`, as those of Pillow images are.
///
/// The base that an array reports may be wrong, so the addresses are compared.
fn borrow_pixels(owner: PyBackedBytes, array: &Bound<'_, PyAny>, size: Size) -> Option<Pixels> {
    let length = size.height.checked_mul(size.width)?.checked_mul(3)?;
    let start = address_of(array)
        .ok()?
        .checked_sub(owner.as_ptr() as usize)?;
    let range = start..start.checked_add(length)?;
    (range.end <= owner.len()).then_some(Pixels { owner, range })
}

/// The address of an array's first element. `ndarray`'s own getter is called, because a subclass
/// may replace it.
fn address_of(array: &Bound<'_, PyAny>) -> PyResult<usize> {
    static INTERFACE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = array.py();
    let getter = INTERFACE.get_or_try_init(py, || {
        let getter = array_type(py)?.getattr("__array_interface__")?;
        Ok::<_, PyErr>(getter.unbind())
    })?;
    let interface = getter.bind(py).call_method1("__get__", (array,))?;
    interface.get_item("data")?.get_item(0)?.extract()
}
