//! Family `dsv41`: an image on a grey canvas, cut into square patches, in bf16.
//!
//! A *plan* says how large the image becomes and where it lies; the planner of the Python
//! face makes one, and this module carries it out. The resize is Pillow's bicubic. A patch
//! is channel, height, width (CHW).
//!
//! Invariant: the resized image is never held. Rows go through the table of values
//! straight into patches, and the output is written once.

use crate::common::{
    Size,
    bf16::bf16_bits,
    memory::filled,
    patches::{Planar, ValueTable},
    resize::{Filter, PassOrder, Resample, ResizeError, Resizing},
};

/// The grey of the canvas. Normalised it is not 0, but nearest to it from below.
const CANVAS_VALUE: usize = 127;

/// Where an image lies on which canvas; all in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImagePlan {
    /// Height of the canvas: whole patches.
    pub out_h: usize,
    /// Width of the canvas: whole patches.
    pub out_w: usize,
    /// Height of the image on it.
    pub resize_h: usize,
    /// Width of the image on it.
    pub resize_w: usize,
    /// Rows of canvas above the image.
    pub top: usize,
    /// Columns of canvas to the left of the image.
    pub left: usize,
    /// Side of a patch.
    pub patch_size: usize,
}

/// A plan cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Dsv41Error {
    /// A side of 0, a canvas of broken patches, an image that sticks out, or a buffer that
    /// does not fit the image.
    #[error(
        "invalid V4.1 image geometry: {got} bytes as an RGB image {image}, resized to {}, {} from the top and {} from the left \
         of a canvas {} in patches of {}", .plan.image(), .plan.top, .plan.left, .plan.canvas(), .plan.patch_size
    )]
    Geometry {
        /// The stated size of the image.
        image: Size,
        /// Its bytes.
        got: usize,
        /// What was to be done with it.
        plan: ImagePlan,
    },
    /// Memory for the patches is not to be had.
    #[error("V4.1 output size overflow: a canvas {0} needs more memory than there is")]
    TooLarge(Size),
    /// The image cannot have that size.
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

    fn is_sound(&self) -> bool {
        // Below, subtractions follow the comparisons that they need.
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

/// The RGB image `rgb` of size `image` on its canvas, as the bf16 bits of patches.
///
/// Patches go row by row over the canvas.
///
/// # Errors
///
/// A plan that makes no sense for this image, or too little memory.
pub fn resize_patchify(rgb: &[u8], image: Size, plan: &ImagePlan) -> Result<Vec<u16>, Dsv41Error> {
    resize_patchify_with(rgb, image, plan, PassOrder::default())
}

/// [`resize_patchify`] with another order of passes than that of Pillow 13.0.
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
    if image.is_empty() || image.rgb_len() != Some(rgb.len()) || !plan.is_sound() {
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

/// The bits of every value of a channel. A true division: the reciprocal gives others.
fn values() -> [u16; 256] {
    std::array::from_fn(|value| bf16_bits((value as f32 / 255.0 - 0.5) / 0.5))
}

#[cfg(test)]
mod tests;
