//! Family `qwen_vl`: still images for Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5. The models
//! differ only in the settings of their checkpoints.
//!
//! An image is resized to the size that [`smart_resize`] computes. Each resized row is looked
//! up in a value table and written directly to the patches. The prompt has one placeholder
//! per image; it is expanded to one token per block of merged patches. Positions have three
//! rows ([`mrope`]).
//!
//! Invariant: `pixel_values` and grid equal those of the Hugging Face image processor that
//! the settings select, bit for bit.

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

/// The name of the model's argument for the grid.
const GRID: &str = "image_grid_thw";

/// The family with the settings of one checkpoint.
#[derive(Clone, Debug)]
pub struct QwenVl {
    spec: QwenVlSpec,
    patches: PatchGrid,
    table: ValueTable<f32>,
}

/// The model's inputs for one image.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelValues {
    /// Patches of `3 * temporal_patch_size * patch_size²` values each; the patches of one
    /// token are contiguous.
    pub values: Vec<f32>,
    /// Patches along time (1), height and width.
    pub grid: [u32; 3],
}

/// An image could not be processed with these settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QwenVlError {
    /// [`smart_resize`] failed.
    #[error(transparent)]
    Size(#[from] SmartResizeError),
    /// The resize failed.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// The memory for the patches could not be allocated.
    #[error("qwen_vl: not enough memory for the patches of an image resized to {0}")]
    TooLarge(Size),
}

impl QwenVl {
    /// Constructs the family with the settings in `spec`.
    ///
    /// # Errors
    ///
    /// If the settings are invalid, so that no image could be processed.
    pub fn new(spec: QwenVlSpec) -> Result<Self, QwenVlSpecError> {
        Ok(Self {
            patches: spec.checked()?,
            table: normalize::value_table(&spec),
            spec,
        })
    }

    /// Constructs the family with the settings in `json`. A field `family` is ignored.
    ///
    /// # Errors
    ///
    /// If the text is not JSON or a field is missing, and as [`Self::new`].
    pub fn from_json(json: &str) -> Result<Self, QwenVlSpecError> {
        Self::new(QwenVlSpec::from_json(json)?)
    }

    /// Resizes the RGB image `rgb` of `size` and cuts it into patches.
    ///
    /// # Errors
    ///
    /// If [`smart_resize`] refuses the size, the buffer does not match it, or memory is
    /// insufficient.
    pub fn pixel_values(&self, rgb: &[u8], size: Size) -> Result<PixelValues, QwenVlError> {
        let target = self.target(size)?;
        resize::check(rgb, size, target.size)?;
        let too_large = QwenVlError::TooLarge(target.size);
        let values = filled(target.len, too_large, |out| {
            Ok(self.write(rgb, size, target, out)?)
        })?;
        Ok(PixelValues {
            values,
            grid: target.grid,
        })
    }

    /// The size, grid and feature length of an image of `size` after the resize.
    fn target(&self, size: Size) -> Result<Target, QwenVlError> {
        let spec = &self.spec;
        let factor = self.patches.factor();
        let size = smart_resize(size, factor, spec.min_pixels, spec.max_pixels)?;
        let too_large = || QwenVlError::TooLarge(size);
        let grid = self.patches.grid(size).ok_or_else(too_large)?;
        let len = self.patches.elements(grid).ok_or_else(too_large)?;
        Ok(Target { size, grid, len })
    }

    /// Writes the patches of `rgb` to `out` and returns `out` as initialised memory.
    fn write<'r>(
        &self,
        rgb: &[u8],
        size: Size,
        target: Target,
        out: &'r mut [MaybeUninit<f32>],
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
        writer.fill(&resizing, 0, rows, out)
    }
}

/// The size that an image is resized to, its grid, and the number of elements of its patches.
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
        out: &'r mut [MaybeUninit<f32>],
    ) -> Result<(&'r mut [f32], Geometry), FamilyError> {
        let DecodedMedia::Image { rgb, height, width } = media;
        let size = Size {
            height: *height,
            width: *width,
        };
        let target = self.target(size)?;
        let values = self.write(rgb, size, target, out)?;
        Ok((values, Geometry::Grid(target.grid)))
    }
}

#[cfg(test)]
mod tests;
