//! Submodule `qwen_vl`: processes images and prompts for the Qwen-VL models.
//!
//! Invariant: grids are (time, height, width) in patches; the end of an offset is inclusive.

use std::{borrow::Cow, num::NonZeroUsize};

use pyo3::{exceptions::PyValueError, prelude::*, pybacked::PyBackedStr, types::PyString};

use super::{
    arguments::{Encoded, Items},
    arrays::into_array,
    detached::detached,
    value_error,
};
use crate::{
    common::{Size, decode::decode_rgb_with, fetch::FetchPolicy},
    driver::{ImageSource, MmInput},
    pipeline::{FamilyError, MmFamilyProcessor as _},
    qwen_vl::{
        PixelValues, QwenPackedOutput, QwenVl,
        mrope::{ImageSpan, mrope_image_only},
        process_packed, smart_resize,
    },
};

/// Adds the functions to the submodule.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.setattr(
        "__doc__",
        "Processes images and prompts for the Qwen-VL models.",
    )?;
    module.add_function(wrap_pyfunction!(mrope_image_only_py, module)?)?;
    module.add_function(wrap_pyfunction!(preprocess, module)?)?;
    module.add_function(wrap_pyfunction!(process_mm, module)?)?;
    module.add_function(wrap_pyfunction!(smart_resize_py, module)?)
}

/// Patches along time, height and width.
type Grid = (u32, u32, u32);

/// Decode and resize an image and cut it into patches.
///
/// Returns the flat pixel values and the grid.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn preprocess<'py>(
    py: Python<'py>,
    data: Encoded,
    spec_json: &str,
) -> PyResult<(Bound<'py, PyAny>, Grid)> {
    let work = || -> Result<PixelValues, FamilyError> {
        let family = QwenVl::from_json(spec_json)?;
        let image = decode_rgb_with(&data, &family.decode_options())?;
        Ok(family.pixel_values(&image.pixels, image.size())?)
    };
    let PixelValues { values, grid } = detached(py, work)?.map_err(family_error)?;
    Ok((into_array(py, values)?, grid.into()))
}

/// The size, height first, to which an image is resized before it is cut into patches.
#[pyfunction]
fn smart_resize_py(
    height: usize,
    width: usize,
    factor: usize,
    min_pixels: usize,
    max_pixels: usize,
) -> PyResult<(usize, usize)> {
    let factor = NonZeroUsize::new(factor)
        .ok_or_else(|| PyValueError::new_err("smart_resize: factor must be positive"))?;
    let size = Size { height, width };
    let resized = smart_resize(size, factor, min_pixels, max_pixels).map_err(value_error)?;
    Ok((resized.height, resized.width))
}

/// The time, height and width positions of a prompt with images, and their delta.
///
/// An item is (first token, last token, time, height, width).
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn mrope_image_only_py(
    py: Python<'_>,
    input_len: usize,
    items: Items<(usize, usize, u32, u32, u32)>,
    merge_size: usize,
) -> PyResult<(Bound<'_, PyAny>, i64)> {
    let span = |&(start, end, time, height, width)| ImageSpan {
        start,
        end,
        grid: [time, height, width],
    };
    let work = || {
        let spans: Vec<ImageSpan> = items.0.iter().map(span).collect();
        mrope_image_only(input_len, &spans, merge_size)
    };
    let mrope = detached(py, work)?.map_err(value_error)?;
    Ok((into_array(py, mrope.positions)?, mrope.delta))
}

/// An image of a request: a URL, path or base64 text, or its encoded bytes.
enum Source {
    Text(PyBackedStr),
    Bytes(Encoded),
}

impl<'py> FromPyObject<'_, 'py> for Source {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            return Ok(Self::Text(object.extract()?));
        }
        Ok(Self::Bytes(object.extract()?))
    }
}

impl Source {
    fn borrowed(&self) -> ImageSource<'_> {
        match self {
            Self::Text(text) => ImageSource::String(Cow::Borrowed(text)),
            Self::Bytes(bytes) => ImageSource::Bytes(Cow::Borrowed(bytes)),
        }
    }
}

/// A processed request: tokens, features, grids, hashes, offsets, positions, delta.
type Processed<'py> = (
    Vec<i32>,
    Bound<'py, PyAny>,
    Vec<Grid>,
    Vec<u64>,
    Vec<(u32, u32)>,
    Bound<'py, PyAny>,
    i64,
);

/// Process a request: a prompt with one placeholder token per image, and the images in order.
///
/// Returns tokens, features, grids, hashes, offsets, positions and their delta.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn process_mm<'py>(
    py: Python<'py>,
    input_ids: Option<Items<i32>>,
    images: Items<Source>,
    spec_json: &str,
) -> PyResult<Processed<'py>> {
    let policy = FetchPolicy::open().with_environment();
    let work = || -> Result<QwenPackedOutput, FamilyError> {
        let family = QwenVl::from_json(spec_json)?;
        let input = MmInput {
            text: None,
            input_ids: input_ids.map(|Items(ids)| Cow::Owned(ids)),
            images: images.0.iter().map(Source::borrowed).collect(),
        };
        // Never called: the prompt is not text.
        let tokenize = |_: &str| Err::<_, FamilyError>("the prompt has token ids".into());
        Ok(process_packed(&family, input, &policy, tokenize)?)
    };
    let packed = detached(py, work)?.map_err(family_error)?;
    Ok((
        packed.input_ids,
        into_array(py, packed.features)?,
        packed.grids.into_iter().map(Grid::from).collect(),
        packed.hashes,
        packed.offsets,
        into_array(py, packed.mrope)?,
        packed.mrope_delta,
    ))
}

/// Like [`value_error`], for the boxed errors of a family.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes a value")]
fn family_error(error: FamilyError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
