//! Submodule `common`: decoding, resizing, hashing and fetching, independent of model
//! families.
//!
//! Invariant: sizes that follow Pillow are width first, sizes that follow arrays are height
//! first. The parameter names show which.

use pyo3::{prelude::*, types::PyBytes};

use super::{
    arguments::Encoded,
    arrays::{Image, into_array},
    detached::detached,
    value_error,
};
use crate::common::{
    Size,
    base64::base64_decode as decode_base64,
    content_hash::content_hash_u64,
    decode::{self, DecodeLimits, DecodeOptions},
    fetch::{ByteBudget, FetchPolicy, MAX_FETCH_BYTES},
    rescale,
    resize::{self, PassOrder, Resample},
};

/// Adds the functions to the submodule.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.setattr(
        "__doc__",
        "Decoding, resizing, hashing and fetching, independent of model families.",
    )?;
    module.add_function(wrap_pyfunction!(base64_decode, module)?)?;
    module.add_function(wrap_pyfunction!(content_hash, module)?)?;
    module.add_function(wrap_pyfunction!(fetch_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(image_decode_rgb, module)?)?;
    module.add_function(wrap_pyfunction!(resize_rgb, module)?)?;
    module.add_function(wrap_pyfunction!(scaled_dims, module)?)
}

/// Resize a (height, width, 3) uint8 image; the bytes equal those of Pillow or torchvision.
///
/// Returns a flat array: row by row, three bytes per pixel.
#[pyfunction]
#[pyo3(signature = (arr, out_w, out_h, resample = "pil_lanczos", *, pass_order = "pillow13"))]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn resize_rgb<'py>(
    py: Python<'py>,
    arr: Image,
    out_w: usize,
    out_h: usize,
    resample: &str,
    pass_order: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let order: PassOrder = pass_order.parse().map_err(value_error)?;
    let resample = Resample::named(resample, order).map_err(value_error)?;
    let to = Size {
        height: out_h,
        width: out_w,
    };
    let resized = detached(py, || {
        resize::resize_rgb(&arr.pixels, arr.size, to, resample)
    })?;
    into_array(py, resized.map_err(value_error)?)
}

/// The size, width first, of an image after scaling by `rescale_frac`.
///
/// `rescale_cap` is the maximum length to which the longer side may grow.
#[pyfunction]
#[pyo3(signature = (w, h, rescale_frac = None, rescale_cap = None))]
fn scaled_dims(
    w: usize,
    h: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
) -> PyResult<(usize, usize)> {
    let from = Size {
        height: h,
        width: w,
    };
    let to = rescale::scaled_dims(from, rescale_frac, rescale_cap).map_err(value_error)?;
    Ok((to.width, to.height))
}

/// `help()` shows the default only if the signature below contains the number itself, not the
/// constant.
const _: () = assert!(DecodeLimits::PILLOW.max_pixels == 178_956_970);

/// Decode a JPEG, PNG, WebP, GIF or BMP file to RGB as Pillow does.
///
/// Returns height, width and the pixels: row by row, three bytes per pixel. `exif_transpose`
/// applies the EXIF orientation. A file whose header states more than `max_pixels` is refused.
#[pyfunction]
#[pyo3(signature = (data, *, exif_transpose = false, max_pixels = 178_956_970))]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn image_decode_rgb(
    py: Python<'_>,
    data: Encoded,
    exif_transpose: bool,
    max_pixels: u64,
) -> PyResult<(usize, usize, Bound<'_, PyAny>)> {
    let options = DecodeOptions {
        limits: DecodeLimits { max_pixels },
        exif_transpose,
    };
    let image = detached(py, || decode::decode_rgb_with(&data, &options))?.map_err(value_error)?;
    let pixels = into_array(py, image.pixels)?;
    Ok((image.height, image.width, pixels))
}

/// The 64-bit content hash of encoded media. Not Python's SHA-256 `data_hash`.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn content_hash(py: Python<'_>, data: Encoded) -> PyResult<u64> {
    detached(py, || content_hash_u64(&data))
}

/// The bytes of an http(s) URL, a local file, a data: URL or base64.
#[pyfunction]
fn fetch_bytes<'py>(py: Python<'py>, source: &str) -> PyResult<Bound<'py, PyBytes>> {
    let policy = FetchPolicy::open().with_environment();
    let budget = ByteBudget::new(MAX_FETCH_BYTES);
    let bytes = detached(py, || policy.fetch(source, &budget))?.map_err(value_error)?;
    to_py_bytes(py, &bytes)
}

/// Decode strict base64: canonical, padded, whitespace only at the ends.
#[pyfunction]
fn base64_decode<'py>(py: Python<'py>, encoded: &str) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = detached(py, || decode_base64(encoded))?.map_err(value_error)?;
    to_py_bytes(py, &bytes)
}

/// Copies `bytes` to Python. A failed allocation is a `MemoryError`; `PyBytes::new` would panic.
fn to_py_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |out| {
        out.copy_from_slice(bytes);
        Ok(())
    })
}
