//! Submodule `inkling`: turns files or images into rows of patches.
//!
//! Invariant: returned sizes are those after rescaling, height first.

use pyo3::prelude::*;

use super::{
    arguments::{Encoded, Items},
    arrays::{Image, into_array},
    detached::detached,
    value_error,
};
use crate::{
    common::{
        content_hash::content_hash_u64,
        decode::{DecodeLimits, DecodeOptions},
        resize::PassOrder,
    },
    inkling::{self, InklingError, Options, Patches},
};

/// Height, width, bf16 bits.
type Patchified<'py> = (usize, usize, Bound<'py, PyAny>);
/// Height, width, bf16 bits, content hash.
type Hashed<'py> = (usize, usize, Bound<'py, PyAny>, u64);

/// Adds the functions to the submodule.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.setattr(
        "__doc__",
        "Cuts images into rows of channel-last bf16 patches.",
    )?;
    module.add_function(wrap_pyfunction!(decode_patchify, module)?)?;
    module.add_function(wrap_pyfunction!(decode_patchify_batch, module)?)?;
    module.add_function(wrap_pyfunction!(patchify_rgb, module)?)?;
    module.add_function(wrap_pyfunction!(preprocess_images, module)?)?;
    module.add_function(wrap_pyfunction!(rescale_patchify_hash, module)?)
}

/// Cut a (height, width, 3) uint8 image into patches; return their bf16 bits.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn patchify_rgb(py: Python<'_>, arr: Image, patch_size: usize) -> PyResult<Bound<'_, PyAny>> {
    let bits = detached(py, || inkling::patchify(&arr.pixels, arr.size, patch_size))?;
    into_array(py, bits.map_err(value_error)?)
}

/// Decode and rescale a file; return height, width and the bf16 bits of its patches.
#[pyfunction]
#[pyo3(signature = (data, patch_size, rescale_frac = None, rescale_cap = None, *,
    pass_order = "pillow13", exif_transpose = false, max_image_pixels = None))]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
fn decode_patchify<'py>(
    py: Python<'py>,
    data: Encoded,
    patch_size: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
    pass_order: &str,
    exif_transpose: bool,
    max_image_pixels: Option<u64>,
) -> PyResult<Patchified<'py>> {
    let decode = decoding(exif_transpose, max_image_pixels);
    let options = options(patch_size, rescale_frac, rescale_cap, pass_order, decode)?;
    let patches = detached(py, || inkling::decode_patchify(&data, options))?;
    patchified(py, patches.map_err(value_error)?)
}

/// Decode and rescale files; return height, width and the bf16 bits of the patches of each.
#[pyfunction]
#[pyo3(signature = (datas, patch_size, rescale_frac = None, rescale_cap = None, *,
    pass_order = "pillow13", exif_transpose = false, max_image_pixels = None))]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
fn decode_patchify_batch<'py>(
    py: Python<'py>,
    datas: Items<Encoded>,
    patch_size: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
    pass_order: &str,
    exif_transpose: bool,
    max_image_pixels: Option<u64>,
) -> PyResult<Vec<Patchified<'py>>> {
    let decode = decoding(exif_transpose, max_image_pixels);
    let options = options(patch_size, rescale_frac, rescale_cap, pass_order, decode)?;
    let images = detached(py, || inkling::decode_patchify_batch(&datas.0, options))?;
    let images = images.map_err(value_error)?.into_iter();
    images.map(|patches| patchified(py, patches)).collect()
}

/// Decode and rescale files; return height, width, bf16 bits and content hash of each.
#[pyfunction]
#[pyo3(signature = (datas, patch_size, rescale_frac = None, rescale_cap = None, *,
    pass_order = "pillow13", exif_transpose = false, max_image_pixels = None))]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
fn preprocess_images<'py>(
    py: Python<'py>,
    datas: Items<Encoded>,
    patch_size: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
    pass_order: &str,
    exif_transpose: bool,
    max_image_pixels: Option<u64>,
) -> PyResult<Vec<Hashed<'py>>> {
    let decode = decoding(exif_transpose, max_image_pixels);
    let options = options(patch_size, rescale_frac, rescale_cap, pass_order, decode)?;
    let images = detached(py, || inkling::preprocess_images(&datas.0, options))?;
    let images = images.map_err(value_error)?.into_iter();
    images
        .map(|(patches, hash)| hashed(py, patches, hash))
        .collect()
}

/// Rescale `arr`; return height, width, bf16 bits of its patches, content hash of `raw_bytes`.
#[pyfunction]
#[pyo3(signature = (arr, raw_bytes, patch_size, rescale_frac = None, rescale_cap = None, *, pass_order = "pillow13"))]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn rescale_patchify_hash<'py>(
    py: Python<'py>,
    arr: Image,
    raw_bytes: Encoded,
    patch_size: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
    pass_order: &str,
) -> PyResult<Hashed<'py>> {
    let decode = DecodeOptions::default();
    let options = options(patch_size, rescale_frac, rescale_cap, pass_order, decode)?;
    let work = || {
        let patches = inkling::rescale_patchify(&arr.pixels, arr.size, options)?;
        Ok::<_, InklingError>((patches, content_hash_u64(&raw_bytes)))
    };
    let (patches, hash) = detached(py, work)?.map_err(value_error)?;
    hashed(py, patches, hash)
}

fn options(
    patch_size: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
    pass_order: &str,
    decode: DecodeOptions,
) -> PyResult<Options> {
    let pass_order: PassOrder = pass_order.parse().map_err(value_error)?;
    Ok(Options {
        patch_size,
        rescale_frac,
        rescale_cap,
        pass_order,
        decode,
    })
}

fn decoding(exif_transpose: bool, max_image_pixels: Option<u64>) -> DecodeOptions {
    DecodeOptions {
        limits: DecodeLimits::at_most(max_image_pixels),
        exif_transpose,
    }
}

fn patchified(py: Python<'_>, Patches { size, bits }: Patches) -> PyResult<Patchified<'_>> {
    Ok((size.height, size.width, into_array(py, bits)?))
}

fn hashed(py: Python<'_>, Patches { size, bits }: Patches, hash: u64) -> PyResult<Hashed<'_>> {
    Ok((size.height, size.width, into_array(py, bits)?, hash))
}
