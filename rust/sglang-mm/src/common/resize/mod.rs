//! Resizes RGB images to exactly the bytes of Pillow, or of `ATen`'s uint8 path.
//!
//! A resize is two passes, one along each axis, with rounding to 8 bits after each. So the
//! *order* of the passes is part of the result, and Pillow has changed it twice.
//!
//! - `axis`: the source pixels and weights of each target pixel.
//! - `order`, `method`: which pass comes first, and the methods a caller can choose.
//! - `scalar`, `avx2`: compute a pass. `packed` lays out the weights for `avx2`, and `pass`
//!   chooses between the two.
//! - `rows`: produces the target rows one by one, so that a caller can write each to its
//!   final place. `cycle` is the cursor through which it reads rows.
//!
//! Invariant: all weights are integers, and only one place rounds. Every implementation of a
//! pass gives the bytes of `scalar`, with any number of threads.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod axis;
mod cycle;
mod method;
mod order;
#[cfg(target_arch = "x86_64")]
mod packed;
mod pass;
mod rows;
mod scalar;

use std::mem::MaybeUninit;

use super::{
    Size,
    isa::Isa,
    memory::{OutOfMemory, filled},
    par,
};
use rows::{Plan, Rows};
use scalar::CHANNELS;

pub use axis::Filter;
pub use method::{Resample, UnknownResample};
pub use order::{PassOrder, UnknownPassOrder};

/// Bytes of a band of a plain image: large enough for a task, and small enough that a small
/// image still gives work to all threads.
const BAND_BYTES: usize = 32 * 1024;

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
    /// The image does not fit on the canvas, or the bands do not match the output.
    #[error(
        "{canvas:?} does not hold an image {to}, or its bands do not make {out} output elements"
    )]
    Canvas {
        /// The requested canvas.
        canvas: Canvas,
        /// Target size.
        to: Size,
        /// Elements of the output.
        out: usize,
    },
    /// The system refused memory for the target or for the passes.
    #[error("not enough memory to resize from {from} to {to}")]
    TooLarge {
        /// Source size.
        from: Size,
        /// Target size.
        to: Size,
    },
}

/// A resize request: an RGB image, the target size and the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resizing<'a> {
    /// The samples in the order height, width, channel.
    pub rgb: &'a [u8],
    /// The size of the image.
    pub from: Size,
    /// The target size.
    pub to: Size,
    /// The method.
    pub resample: Resample,
}

/// A canvas that is split into bands of rows: the place of the resized image on it, and the
/// length of each band in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Canvas {
    /// Canvas rows above the image.
    pub top: usize,
    /// All canvas rows.
    pub height: usize,
    /// Canvas rows per band. The last band may have fewer.
    pub band_rows: usize,
    /// Canvas rows per strip. Each call of the callback gets one strip. The last strip of a band
    /// may have fewer rows.
    pub strip_rows: usize,
    /// Output elements per band. The last band may have fewer.
    pub band_len: usize,
}

impl Canvas {
    fn fits(self, to: Size, out: usize) -> bool {
        self.band_rows > 0
            && self.strip_rows > 0
            && self.band_len > 0
            && (self.top.checked_add(to.height)).is_some_and(|end| end <= self.height)
            && self.height.div_ceil(self.band_rows) == out.div_ceil(self.band_len)
    }
}

/// Consecutive rows of a canvas: image rows, with empty rows before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strip<'a> {
    /// Empty rows of the strip above its first image row.
    pub above: usize,
    /// The RGB bytes of the image rows, row by row.
    pub rows: &'a [u8],
    /// Bytes per image row.
    pub row_len: usize,
}

/// Resizes the RGB image `src` from size `from` to size `to`.
///
/// # Errors
///
/// A size without pixels, a buffer that does not match `from`, or too little memory.
pub fn resize_rgb(
    src: &[u8],
    from: Size,
    to: Size,
    resample: Resample,
) -> Result<Vec<u8>, ResizeError> {
    check(src, from, to)?;
    let too_large = ResizeError::TooLarge { from, to };
    let len = to.rgb_len().ok_or(too_large.clone())?;
    let row_len = to.width * CHANNELS;
    let band_rows = (BAND_BYTES / row_len).max(1);
    let canvas = Canvas {
        top: 0,
        height: to.height,
        band_rows,
        strip_rows: 1,
        band_len: band_rows * row_len,
    };
    let copy = |y, strip: Strip<'_>, window: &mut [MaybeUninit<u8>]| {
        window[y % band_rows * row_len..][..row_len].write_copy_of_slice(strip.rows);
    };
    let resizing = Resizing {
        rgb: src,
        from,
        to,
        resample,
    };
    // SAFETY: a strip is one row, and all canvas rows are image rows.
    filled(len, too_large, |out| unsafe {
        fill(&resizing, canvas, out, copy)
    })
}

/// As [`resize_into`], for uninitialised output.
///
/// # Safety
///
/// The bands of `canvas` must match `out` exactly. After the calls for all strips of a band,
/// `write` must have written every element of the band.
pub(super) unsafe fn fill<'o, T: Copy + Send>(
    resizing: &Resizing<'_>,
    canvas: Canvas,
    out: &'o mut [MaybeUninit<T>],
    write: impl Fn(usize, Strip<'_>, &mut [MaybeUninit<T>]) + Send + Sync,
) -> Result<&'o mut [T], ResizeError> {
    resize_into(resizing, canvas, out, write)?;
    // SAFETY: `write` got every strip of every band, so by the contract every element is written.
    Ok(unsafe { out.assume_init_mut() })
}

/// Resizes without storing the resized image. Calls `write(y, strip, window)` for every strip
/// of the canvas, in order within its band: `y` is the first canvas row of the strip, and
/// `window` is the part of `out` for the band.
///
/// Bands may run in parallel, through [`par`]. The output does not depend on that.
///
/// # Errors
///
/// A size without pixels, a buffer that does not match `from`, a canvas that does not match
/// the image or `out`, or too little memory.
pub fn resize_into<T, W>(
    resizing: &Resizing<'_>,
    canvas: Canvas,
    out: &mut [T],
    write: W,
) -> Result<(), ResizeError>
where
    T: Send,
    W: Fn(usize, Strip<'_>, &mut [T]) + Send + Sync,
{
    let Resizing {
        rgb,
        from,
        to,
        resample,
    } = *resizing;
    check(rgb, from, to)?;
    if !canvas.fits(to, out.len()) {
        return Err(ResizeError::Canvas {
            canvas,
            to,
            out: out.len(),
        });
    }
    let too_large = |OutOfMemory| ResizeError::TooLarge { from, to };
    let plan = Plan::new(Isa::best(), rgb, from, to, resample).map_err(too_large)?;
    let row_len = to.width * CHANNELS;
    let image_row = |y: usize| y.saturating_sub(canvas.top).min(to.height);
    let write_band = |rows: &mut Rows<'_>, band: usize, window: &mut [T]| {
        let first = band * canvas.band_rows;
        let last = canvas.height.min(first.saturating_add(canvas.band_rows));
        for y in (first..last).step_by(canvas.strip_rows) {
            let end = last.min(y.saturating_add(canvas.strip_rows));
            let strip = Strip {
                above: canvas.top.saturating_sub(y).min(end - y),
                rows: rows.get(image_row(y)..image_row(end)),
                row_len,
            };
            write(y, strip, window);
        }
    };
    let scratch = || plan.rows(canvas.strip_rows);
    par::for_chunks_mut_with(out, canvas.band_len, scratch, write_band).map_err(too_large)
}

/// Checks a request without any work. Callers that allocate their own output call it first.
pub(crate) fn check(src: &[u8], from: Size, to: Size) -> Result<(), ResizeError> {
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
    if to.rgb_len().is_none() {
        return Err(ResizeError::TooLarge { from, to });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
