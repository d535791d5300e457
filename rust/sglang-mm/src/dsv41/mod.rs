//! Family `dsv41`: an image is resized, placed on a grey canvas, and cut into square bf16
//! patches.
//!
//! An [`ImagePlan`] holds the image's size and its place on the canvas. The planner is in the
//! Python package `sglang.srt.multimodal`; this module executes the plan. The resize is
//! Pillow's bicubic. The values of a patch are in channel, height, width (CHW) order.
//!
//! Invariant: the resized image is never stored as a whole. Each resized row is looked up in
//! the value table and written directly to the patches. Every output value is written once.

use crate::common::{
    Size,
    bf16::bf16_bits,
    memory::filled,
    patches::{Planar, ValueTable},
    resize::{Filter, PassOrder, Resample, ResizeError, Resizing},
};

/// The sample value of the canvas. Its normalised value is the largest one below 0.
const CANVAS_VALUE: usize = 127;

/// The size of the canvas, and the size and place of the image on it. All fields are pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImagePlan {
    /// Height of the canvas, a multiple of `patch_size`.
    pub out_h: usize,
    /// Width of the canvas, a multiple of `patch_size`.
    pub out_w: usize,
    /// Height of the resized image.
    pub resize_h: usize,
    /// Width of the resized image.
    pub resize_w: usize,
    /// Rows of canvas above the image.
    pub top: usize,
    /// Columns of canvas to the left of the image.
    pub left: usize,
    /// Height and width of a patch.
    pub patch_size: usize,
}

/// A plan could not be executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Dsv41Error {
    /// A side is 0, the canvas is not a multiple of the patch size, the image exceeds the
    /// canvas, or the buffer does not have the image's size.
    #[error(
        "invalid V4.1 image geometry: {got} bytes as an RGB image {image}, resized to {}, \
         {} from the top and {} from the left of a canvas {} in patches of {}",
        .plan.image(), .plan.top, .plan.left, .plan.canvas(), .plan.patch_size
    )]
    Geometry {
        /// The stated size of the image.
        image: Size,
        /// Length of the buffer in bytes.
        got: usize,
        /// The plan.
        plan: ImagePlan,
    },
    /// The memory for the patches could not be allocated.
    #[error("V4.1 output size overflow: not enough memory for a canvas {0}")]
    TooLarge(Size),
    /// The resize failed.
    #[error(transparent)]
    Resize(#[from] ResizeError),
}

impl ImagePlan {
    fn canvas(&self) -> Size {
        Size {
            height: self.out_h,
            width: self.out_w,
        }
    }

    fn image(&self) -> Size {
        Size {
            height: self.resize_h,
            width: self.resize_w,
        }
    }

    fn is_valid(&self) -> bool {
        // The subtractions cannot underflow: the comparisons before them are evaluated first.
        self.patch_size > 0
            && !self.canvas().is_empty()
            && !self.image().is_empty()
            && self.out_h.is_multiple_of(self.patch_size)
            && self.out_w.is_multiple_of(self.patch_size)
            && self.resize_h <= self.out_h
            && self.resize_w <= self.out_w
            && self.top <= self.out_h - self.resize_h
            && self.left <= self.out_w - self.resize_w
    }
}

/// Places the RGB image `rgb` of size `image` on its canvas and returns the bf16 bits of the
/// patches, row by row over the canvas.
///
/// # Errors
///
/// If the plan or the buffer is invalid, or memory is insufficient.
pub fn resize_patchify(rgb: &[u8], image: Size, plan: &ImagePlan) -> Result<Vec<u16>, Dsv41Error> {
    resize_patchify_with(rgb, image, plan, PassOrder::default())
}

/// Like [`resize_patchify`], with a choice of the order of resize passes. The default is that
/// of Pillow 13.0.
///
/// # Errors
///
/// As [`resize_patchify`].
pub fn resize_patchify_with(
    rgb: &[u8],
    image: Size,
    plan: &ImagePlan,
    pass_order: PassOrder,
) -> Result<Vec<u16>, Dsv41Error> {
    if image.is_empty() || image.rgb_len() != Some(rgb.len()) || !plan.is_valid() {
        return Err(Dsv41Error::Geometry {
            image,
            got: rgb.len(),
            plan: *plan,
        });
    }
    let too_large = Dsv41Error::TooLarge(plan.canvas());
    let len = plan.canvas().rgb_len().ok_or(too_large.clone())?;
    let values = values();
    let writer = Planar {
        table: &ValueTable([values; 3]),
        padding: [values[CANVAS_VALUE]; 3],
        patch: plan.patch_size,
        columns: plan.out_w / plan.patch_size,
        merge: 1,
        copies: 1,
        left: plan.left,
    };
    let resizing = Resizing {
        rgb,
        from: image,
        to: plan.image(),
        resample: Resample::Pil(Filter::Bicubic, pass_order),
    };
    let rows = plan.out_h / plan.patch_size;
    filled(len, too_large, |out| {
        Ok(writer.fill(&resizing, plan.top, rows, out)?)
    })
}

/// The bf16 bits for each sample value. Samples are divided by 255: a multiplication by the
/// reciprocal would give other bits.
fn values() -> [u16; 256] {
    std::array::from_fn(|value| bf16_bits((value as f32 / 255.0 - 0.5) / 0.5))
}

#[cfg(test)]
mod tests;
