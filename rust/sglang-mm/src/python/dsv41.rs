//! Submodule `dsv41`: executes the plans of the Python planner.
//!
//! Invariant: sizes are (height, width), places are (top, left).

use pyo3::prelude::*;

use super::{
    arrays::{Image, into_array},
    detached::detached,
    value_error,
};
use crate::{
    common::resize::PassOrder,
    dsv41::{self, ImagePlan},
};

/// Adds the functions to the submodule.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.setattr(
        "__doc__",
        "Places an image on a grey canvas and cuts the canvas into channel-first bf16 patches.",
    )?;
    module.add_function(wrap_pyfunction!(resize_patchify, module)?)
}

/// Resize a (height, width, 3) uint8 image, place it on a canvas, and cut the canvas into patches.
///
/// Sizes are (height, width), the start is (top, left). Returns the bf16 bits as a flat array.
#[pyfunction]
#[pyo3(signature = (arr, output_size, resize_size, padding_start, patch_size, /, *, pass_order = "pillow13"))]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn resize_patchify<'py>(
    py: Python<'py>,
    arr: Image,
    output_size: (usize, usize),
    resize_size: (usize, usize),
    padding_start: (usize, usize),
    patch_size: usize,
    pass_order: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let order: PassOrder = pass_order.parse().map_err(value_error)?;
    let plan = ImagePlan {
        out_h: output_size.0,
        out_w: output_size.1,
        resize_h: resize_size.0,
        resize_w: resize_size.1,
        top: padding_start.0,
        left: padding_start.1,
        patch_size,
    };
    let bits = detached(py, || {
        dsv41::resize_patchify_with(&arr.pixels, arr.size, &plan, order)
    })?;
    into_array(py, bits.map_err(value_error)?)
}
