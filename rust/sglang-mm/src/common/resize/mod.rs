//! Resizing RGB images to the very bytes of Pillow, or of `ATen`'s uint8 path.
//!
//! A resize is two passes, one along each axis, with a rounding to 8 bits after each;
//! so the *order* of the passes is part of the result, and Pillow has changed it twice.
//! `axis` decides which source pixels a target pixel sees and with what weight,
//! `order` which pass comes first, `scalar` what a pass computes and `avx2` the same
//! faster, from weights that `packed` lays out for it; `pass` chooses between the two.
//! `rows` makes the target rows one by one, so that a caller can put each where it
//! belongs at once.
//!
//! Invariant: all weights are integers with one place that rounds. Whatever computes a
//! pass, on however many threads, gives the same bytes as `scalar`.

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

/// Bytes of a band of a plain image: enough to be worth a task, few enough that a small
/// image still fills the pool.
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
    /// The canvas does not hold the image, or its bands are not those of the output.
    #[error(
        "{canvas:?} does not hold an image {to}, or its bands do not make {out} output elements"
    )]
    Canvas {
        /// The canvas asked for.
        canvas: Canvas,
        /// Target size.
        to: Size,
        /// Elements of the output.
        out: usize,
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

/// An RGB image, and the size that it is brought to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resizing<'a> {
    /// The image: height, width, channel.
    pub rgb: &'a [u8],
    /// Its size.
    pub from: Size,
    /// The size asked for.
    pub to: Size,
    /// Whose arithmetic to follow.
    pub resample: Resample,
}

/// Where the resized image lies on a canvas that is cut into bands of rows, and how much
/// of the output each band is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Canvas {
    /// Canvas rows above the image.
    pub top: usize,
    /// Canvas rows in all.
    pub height: usize,
    /// Canvas rows of a band; the last band may have fewer.
    pub band_rows: usize,
    /// Canvas rows that are handed out at once; the last strip of a band may have fewer.
    pub strip_rows: usize,
    /// Output elements of a band; the last band may have fewer.
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

/// Some rows of a canvas: rows of the image between rows that have nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strip<'a> {
    /// Canvas rows above the first row of the image.
    pub above: usize,
    /// The RGB bytes of the image's rows, one row behind the other.
    pub rows: &'a [u8],
    /// Bytes of a row of the image.
    pub row_len: usize,
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
    // SAFETY: a strip is a row, and there is no row beside those of the image.
    filled(len, too_large, |out| unsafe {
        fill(&resizing, canvas, out, copy)
    })
}

/// As [`resize_into`], for room that nobody has written yet.
///
/// # Safety
///
/// The bands of `canvas` must be exactly those of `out`, and `write` must have written
/// every element of a band when it got all strips of it.
pub(super) unsafe fn fill<'o, T: Copy + Send>(
    resizing: &Resizing<'_>,
    canvas: Canvas,
    out: &'o mut [MaybeUninit<T>],
    write: impl Fn(usize, Strip<'_>, &mut [MaybeUninit<T>]) + Send + Sync,
) -> Result<&'o mut [T], ResizeError> {
    resize_into(resizing, canvas, out, write)?;
    // SAFETY: every strip of every band was handed out, so everything is written, the caller says.
    Ok(unsafe { out.assume_init_mut() })
}

/// Resizes without ever holding the resized image: `write(y, strip, window)` gets every
/// strip of the canvas, in order within its band, with its first canvas row `y` and the
/// band's window of `out`.
///
/// Bands fan out through [`par`]; what is written does not depend on how.
///
/// # Errors
///
/// A size without pixels, a buffer that does not fit `from`, a canvas that does not fit
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
    let inside = |y: usize| y.saturating_sub(canvas.top).min(to.height);
    let hand_out = |rows: &mut Rows<'_>, band: usize, window: &mut [T]| {
        let first = band * canvas.band_rows;
        let last = canvas.height.min(first.saturating_add(canvas.band_rows));
        for y in (first..last).step_by(canvas.strip_rows) {
            let end = last.min(y.saturating_add(canvas.strip_rows));
            let strip = Strip {
                above: canvas.top.saturating_sub(y).min(end - y),
                rows: rows.get(inside(y)..inside(end)),
                row_len,
            };
            write(y, strip, window);
        }
    };
    let scratch = || plan.rows(canvas.strip_rows);
    par::for_chunks_mut_with(out, canvas.band_len, scratch, hand_out).map_err(too_large)
}

/// What can be refused without any work: callers that take memory of their own ask before.
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
