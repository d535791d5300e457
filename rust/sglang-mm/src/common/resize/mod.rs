//! Resizing RGB images to the very bytes of Pillow, or of `ATen`'s uint8 path.
//!
//! A resize is two passes, one along each axis, with a rounding to 8 bits after each;
//! so the *order* of the passes is part of the result, and Pillow has changed it twice.
//! `axis` decides which source pixels a target pixel sees and with what weight,
//! `order` which pass comes first, `scalar` what a pass computes.
//!
//! Invariant: all weights are integers with one place that rounds. Whatever computes a
//! pass, on however many threads, gives the same bytes as `scalar`.

mod axis;
mod order;
mod pass;
mod scalar;

use super::{
    Size,
    memory::{OutOfMemory, zeroed},
    par,
};
use axis::{Axis, Quantization};

pub use axis::Filter;
pub use order::{PassOrder, UnknownPassOrder};

/// Whose arithmetic to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resample {
    /// Pillow's `Image.resize` of an RGB image.
    Pil(Filter, PassOrder),
    /// The antialiased bicubic that `ATen` (so torchvision) runs on uint8 CPU tensors.
    /// It goes along the rows first, always.
    AtenU8,
}

impl Resample {
    /// The method that callers name `pil_lanczos`, `pil_bicubic` or `aten_u8`.
    ///
    /// # Errors
    ///
    /// Any other name.
    pub fn named(name: &str, order: PassOrder) -> Result<Self, UnknownResample> {
        match name {
            "pil_lanczos" => Ok(Self::Pil(Filter::Lanczos, order)),
            "pil_bicubic" => Ok(Self::Pil(Filter::Bicubic, order)),
            "aten_u8" => Ok(Self::AtenU8),
            _ => Err(UnknownResample(name.to_owned())),
        }
    }

    fn axis(self, from: usize, to: usize) -> Result<Axis, OutOfMemory> {
        match self {
            Self::Pil(filter, _) => Axis::new(filter, Quantization::Pillow, from, to),
            Self::AtenU8 => Axis::new(Filter::Bicubic, Quantization::Aten, from, to),
        }
    }

    fn vertical_first(self, from: Size, to: Size) -> bool {
        match self {
            Self::Pil(_, order) => order.vertical_first(from, to),
            Self::AtenU8 => false,
        }
    }
}

/// No resize method has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown resample `{0}`: expected `pil_lanczos`, `pil_bicubic` or `aten_u8`")]
pub struct UnknownResample(pub String);

/// The request cannot be resized.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// A target without pixels.
    #[error("output size must be positive, got {0}")]
    EmptyOutput(Size),
    /// A source without pixels.
    #[error("input size must be positive, got {0}")]
    EmptyInput(Size),
    /// The buffer is not an image of the stated size.
    #[error("an RGB image {size} does not have {got} bytes")]
    Length {
        /// The stated size.
        size: Size,
        /// Bytes received.
        got: usize,
    },
    /// Memory for the target, or for the way there, is not to be had.
    #[error("resizing from {from} to {to} needs more memory than there is")]
    TooLarge {
        /// Source size.
        from: Size,
        /// Target size.
        to: Size,
    },
}

/// The RGB image `src`, of size `from`, resized to `to`.
///
/// # Errors
///
/// A size without pixels, a buffer that does not fit `from`, or too little memory.
pub fn resize_rgb(
    src: &[u8],
    from: Size,
    to: Size,
    resample: Resample,
) -> Result<Vec<u8>, ResizeError> {
    if to.is_empty() {
        return Err(ResizeError::EmptyOutput(to));
    }
    if from.is_empty() {
        return Err(ResizeError::EmptyInput(from));
    }
    if from.rgb_len() != Some(src.len()) {
        return Err(ResizeError::Length {
            size: from,
            got: src.len(),
        });
    }
    let too_large = ResizeError::TooLarge { from, to };
    if to.rgb_len().is_none() {
        return Err(too_large);
    }
    par::in_pool(|| run(src, from, to, resample)).map_err(|OutOfMemory| too_large)
}

/// The passes in their order; one along an axis that keeps its length is left out.
fn run(src: &[u8], from: Size, to: Size, resample: Resample) -> Result<Vec<u8>, OutOfMemory> {
    let wider = (from.width != to.width)
        .then(|| resample.axis(from.width, to.width))
        .transpose()?;
    let higher = (from.height != to.height)
        .then(|| resample.axis(from.height, to.height))
        .transpose()?;
    match (wider, higher) {
        (None, None) => {
            let mut copy = zeroed(src.len())?;
            copy.copy_from_slice(src);
            Ok(copy)
        }
        (Some(x), None) => pass::horizontal(src, from, &x),
        (None, Some(y)) => pass::vertical(src, from, &y),
        (Some(x), Some(y)) if resample.vertical_first(from, to) => {
            let between = Size {
                height: to.height,
                ..from
            };
            pass::horizontal(&pass::vertical(src, from, &y)?, between, &x)
        }
        (Some(x), Some(y)) => {
            let between = Size {
                width: to.width,
                ..from
            };
            pass::vertical(&pass::horizontal(src, from, &x)?, between, &y)
        }
    }
}

#[cfg(test)]
mod tests;
