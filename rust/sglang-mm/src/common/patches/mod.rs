//! Converts strips of RGB rows to the patches that a vision tower reads.
//!
//! Normalisation is a table lookup: for each channel a byte has one value, which a family
//! computes by its own formula. So a row of patches is written directly from a strip of resized
//! rows, without storing the resized or the normalised image. `planar` keeps the channels of a
//! patch apart, and `interleaved` keeps the channels of a pixel together.
//!
//! Invariant: values are copied from the table and the padding, without arithmetic, and every
//! element of a patch is written.

mod interleaved;
mod planar;

use std::ops::Range;

pub use interleaved::Interleaved;
pub use planar::Planar;

/// The value of each byte in each channel, red first.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueTable<T>(pub [[T; 256]; 3]);

/// The element type of a patch: `f32`, or the bits of a `bf16`.
pub trait Element: sealed::Element {}

impl Element for f32 {}
impl Element for u16 {}

mod sealed {
    pub trait Element: Copy + Send + Sync {}

    impl Element for f32 {}
    impl Element for u16 {}
}

/// The overlap of `len` pixels from `at` with an image row of `width` pixels from `left`: how many of
/// the `len` pixels come before the row, and which pixels of the row follow.
fn overlap(at: usize, len: usize, left: usize, width: usize) -> (usize, Range<usize>) {
    let start = at.saturating_sub(left).min(width);
    let end = (at + len).saturating_sub(left).min(width);
    (left.saturating_sub(at).min(len), start..end)
}

#[cfg(test)]
mod tests;
