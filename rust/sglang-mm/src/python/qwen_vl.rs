//! Submodule `qwen_vl`: pictures and prompts of the Qwen-VL models.
//!
//! Invariant: grids are (time, height, width) in patches, and offsets include their end.

use std::{borrow::Cow, num::NonZeroUsize};

use numpy::{IntoPyArray, PyArray1};
use pyo3::{exceptions::PyValueError, prelude::*, pybacked::PyBackedStr, types::PyString};

use super::{
    arguments::{Encoded, Many},
    released::released,
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

/// Fills the submodule.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.setattr("__doc__", "Pictures and prompts of the Qwen-VL models.")?;
    module.add_function(wrap_pyfunction!(mrope_image_only_py, module)?)?;
    module.add_function(wrap_pyfunction!(preprocess, module)?)?;
    module.add_function(wrap_pyfunction!(process_mm, module)?)?;
    module.add_function(wrap_pyfunction!(smart_resize_py, module)?)
}

/// Patches along time, height and width.
type Grid = (u32, u32, u32);

/// Decode a picture and cut it into the patches that the model reads.
///
/// Gives the flat pixel values and the grid.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn preprocess<'py>(
    py: Python<'py>,
    data: Encoded,
    spec_json: &str,
) -> PyResult<(Bound<'py, PyArray1<f32>>, Grid)> {
    let work = || -> Result<PixelValues, FamilyError> {
        let family = QwenVl::from_json(spec_json)?;
        let image = decode_rgb_with(&data, &family.decode_options())?;
        Ok(family.pixel_values(&image.pixels, image.size())?)
    };
    let PixelValues { values, grid } = released(py, work)?.map_err(refused)?;
    Ok((values.into_pyarray(py), grid.into()))
}

/// The size, height first, that a picture gets before it is cut into patches.
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

/// The time, height and width positions of a prompt with pictures, and their delta.
///
/// An item is (first token, last token, time, height, width).
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn mrope_image_only_py(
    py: Python<'_>,
    input_len: usize,
    items: Many<(usize, usize, u32, u32, u32)>,
    merge_size: usize,
) -> PyResult<(Bound<'_, PyArray1<i64>>, i64)> {
    let span = |&(start, end, time, height, width)| ImageSpan {
        start,
        end,
        grid: [time, height, width],
    };
    let work = || {
        let spans: Vec<ImageSpan> = items.0.iter().map(span).collect();
        mrope_image_only(input_len, &spans, merge_size)
    };
    let mrope = released(py, work)?.map_err(value_error)?;
    Ok((mrope.positions.into_pyarray(py), mrope.delta))
}

/// A picture of a request: text that names it, or its encoded bytes.
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
    Bound<'py, PyArray1<f32>>,
    Vec<Grid>,
    Vec<u64>,
    Vec<(u32, u32)>,
    Bound<'py, PyArray1<i64>>,
    i64,
);

/// Process a request: one placeholder token per picture, and the pictures in order.
///
/// Gives tokens, features, grids, hashes, offsets, positions and their delta.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
fn process_mm<'py>(
    py: Python<'py>,
    input_ids: Option<Many<i32>>,
    images: Many<Source>,
    spec_json: &str,
) -> PyResult<Processed<'py>> {
    let policy = FetchPolicy::open().with_environment();
    let work = || -> Result<QwenPackedOutput, FamilyError> {
        let family = QwenVl::from_json(spec_json)?;
        let input = MmInput {
            text: None,
            input_ids: input_ids.map(|Many(ids)| Cow::Owned(ids)),
            images: images.0.iter().map(Source::borrowed).collect(),
        };
        // Never asked: there is no text.
        let tokenize = |_: &str| Err::<_, FamilyError>("no tokenizer here".into());
        Ok(process_packed(&family, input, &policy, tokenize)?)
    };
    let packed = released(py, work)?.map_err(refused)?;
    Ok((
        packed.input_ids,
        packed.features.into_pyarray(py),
        packed.grids.into_iter().map(Grid::from).collect(),
        packed.hashes,
        packed.offsets,
        packed.mrope.into_pyarray(py),
        packed.mrope_delta,
    ))
}

/// As [`value_error`], for errors of several kinds.
#[expect(clippy::needless_pass_by_value, reason = "what `map_err` hands over")]
fn refused(error: FamilyError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
