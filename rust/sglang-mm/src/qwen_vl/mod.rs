//! Still pictures of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5: one code, settings by
//! checkpoint.
//!
//! A picture is resized to a size that [`smart_resize`] picks, and its rows go through a
//! table of values straight into patches. In the prompt one placeholder per picture
//! becomes as many as it has merged patches; positions have three rows ([`mrope`]).
//!
//! Invariant: `pixel_values` and grid are those of the Hugging Face image processor that
//! the settings name, bit for bit.

pub mod mrope;
mod normalize;
mod pack;
mod patch_grid;
mod smart_resize;
mod spec;

use std::mem::MaybeUninit;

use crate::{
    common::{
        Size,
        decode::DecodeOptions,
        memory::filled,
        patches::{Planar, ValueTable},
        resize::{self, ResizeError, Resizing},
        token_layout::layout_by_placeholder,
    },
    pipeline::{
        DecodedMedia, FamilyError, Geometry, MmFamilyProcessor, PackedFamily, PositionOutput,
        ProcessedItem, Tensor, TensorData, TokenLayout,
    },
};
use mrope::{ImageSpan, MRopeError, mrope_image_only};
use patch_grid::PatchGrid;

pub use pack::{PackError, QwenPackedOutput, pack_output, process_packed};
pub use smart_resize::{SmartResizeError, smart_resize};
pub use spec::{Backend, QwenVlSpec, QwenVlSpecError};

/// The name under which the model takes the grid.
const GRID: &str = "image_grid_thw";

/// The family with the settings of one checkpoint.
#[derive(Clone, Debug)]
pub struct QwenVl {
    spec: QwenVlSpec,
    patches: PatchGrid,
    table: ValueTable<f32>,
}

/// What the model sees of one picture.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelValues {
    /// Patches of `3 * temporal_patch_size * patch_size²` values each; the patches of one
    /// token follow one another.
    pub values: Vec<f32>,
    /// Patches along time (1), height and width.
    pub grid: [u32; 3],
}

/// The picture cannot be processed under these settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QwenVlError {
    /// No size for it.
    #[error(transparent)]
    Size(#[from] SmartResizeError),
    /// No resize to that size.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// The patches are more than there is memory for.
    #[error("qwen_vl: patches of an image resized to {0} need more memory than there is")]
    TooLarge(Size),
}

impl QwenVl {
    /// The family under `spec`.
    ///
    /// # Errors
    ///
    /// Settings that no picture can be processed with.
    pub fn new(spec: QwenVlSpec) -> Result<Self, QwenVlSpecError> {
        Ok(Self {
            patches: spec.checked()?,
            table: normalize::value_table(&spec),
            spec,
        })
    }

    /// The family under the settings in `json`, where a field `family` is ignored.
    ///
    /// # Errors
    ///
    /// Text that is not JSON or lacks a field, and as [`Self::new`].
    pub fn from_json(json: &str) -> Result<Self, QwenVlSpecError> {
        Self::new(QwenVlSpec::from_json(json)?)
    }

    /// The patches of the RGB image `rgb` of `size`.
    ///
    /// # Errors
    ///
    /// A size that the rule of sizes refuses, a buffer that does not fit it, or too
    /// little memory.
    pub fn pixel_values(&self, rgb: &[u8], size: Size) -> Result<PixelValues, QwenVlError> {
        let target = self.target(size)?;
        resize::check(rgb, size, target.size)?;
        let too_large = QwenVlError::TooLarge(target.size);
        let values = filled(target.len, too_large, |room| {
            Ok(self.write(rgb, size, target, room)?)
        })?;
        Ok(PixelValues {
            values,
            grid: target.grid,
        })
    }

    /// What a picture of `size` becomes.
    fn target(&self, size: Size) -> Result<Target, QwenVlError> {
        let spec = &self.spec;
        let factor = self.patches.factor();
        let size = smart_resize(size, factor, spec.min_pixels, spec.max_pixels)?;
        let too_large = || QwenVlError::TooLarge(size);
        let grid = self.patches.grid(size).ok_or_else(too_large)?;
        let len = self.patches.elements(grid).ok_or_else(too_large)?;
        Ok(Target { size, grid, len })
    }

    /// Writes the patches of `rgb` to `room`.
    fn write<'r>(
        &self,
        rgb: &[u8],
        size: Size,
        target: Target,
        room: &'r mut [MaybeUninit<f32>],
    ) -> Result<&'r mut [f32], ResizeError> {
        let [_, rows, columns] = target.grid.map(|patches| patches as usize);
        let writer = Planar {
            table: &self.table,
            padding: [0.0; 3],
            patch: self.spec.patch_size,
            columns,
            merge: self.spec.merge_size,
            copies: self.spec.temporal_patch_size,
            left: 0,
        };
        let resizing = Resizing {
            rgb,
            from: size,
            to: target.size,
            resample: self.spec.resampling(),
        };
        writer.fill(&resizing, 0, rows, room)
    }
}

/// The size that a picture is resized to, its patches and their elements.
#[derive(Clone, Copy, Debug)]
struct Target {
    size: Size,
    grid: [u32; 3],
    len: usize,
}

impl MmFamilyProcessor for QwenVl {
    fn decode_options(&self) -> DecodeOptions {
        self.spec.decoding()
    }

    fn process_item(&self, media: &DecodedMedia) -> Result<ProcessedItem, FamilyError> {
        let DecodedMedia::Image { rgb, height, width } = media;
        let size = Size {
            height: *height,
            width: *width,
        };
        let PixelValues { values, grid } = self.pixel_values(rgb, size)?;
        let dim = self.patches.patch_len();
        let sides = Tensor {
            shape: vec![grid.len()],
            data: TensorData::I64(grid.map(i64::from).to_vec()),
        };
        Ok(ProcessedItem {
            feature: Tensor {
                shape: vec![values.len() / dim, dim],
                data: TensorData::F32(values),
            },
            aux: vec![(GRID.to_owned(), sides)],
            geometry: Geometry::Grid(grid),
        })
    }

    fn layout(&self, ids: &[i32], geometries: &[Geometry]) -> Result<TokenLayout, FamilyError> {
        let tokens = |Geometry::Grid(grid): &Geometry| self.patches.tokens(*grid);
        let counts: Vec<usize> = geometries.iter().map(tokens).collect();
        Ok(layout_by_placeholder(
            ids,
            self.spec.image_token_id,
            &counts,
        )?)
    }

    fn positions(
        &self,
        input_len: usize,
        offsets: &[(u32, u32)],
        geometries: &[Geometry],
    ) -> Result<PositionOutput, FamilyError> {
        if offsets.len() != geometries.len() {
            return Err(MRopeError::Count {
                offsets: offsets.len(),
                grids: geometries.len(),
            }
            .into());
        }
        let span = |(&(start, end), Geometry::Grid(grid)): (&(u32, u32), &Geometry)| ImageSpan {
            start: start as usize,
            end: end as usize,
            grid: *grid,
        };
        let items: Vec<ImageSpan> = offsets.iter().zip(geometries).map(span).collect();
        let mrope = mrope_image_only(input_len, &items, self.spec.merge_size)?;
        Ok(PositionOutput::MRope {
            positions: mrope.positions,
            delta: mrope.delta,
        })
    }
}

impl PackedFamily for QwenVl {
    fn feature_len(&self, size: Size) -> Result<usize, FamilyError> {
        Ok(self.target(size)?.len)
    }

    fn write_feature<'r>(
        &self,
        media: &DecodedMedia,
        room: &'r mut [MaybeUninit<f32>],
    ) -> Result<(&'r mut [f32], Geometry), FamilyError> {
        let DecodedMedia::Image { rgb, height, width } = media;
        let size = Size {
            height: *height,
            width: *width,
        };
        let target = self.target(size)?;
        let values = self.write(rgb, size, target, room)?;
        Ok((values, Geometry::Grid(target.grid)))
    }
}

#[cfg(test)]
mod tests;
