//! How strips of RGB rows become the patches that a vision tower reads.
//!
//! Normalisation is a table: a byte of a channel has one value, whatever formula a family
//! computes it by. So a row of patches is looked up from a strip of resized rows and
//! written at once, front to back; neither the resized image nor a normalised one exists.
//! `planar` keeps the channels of a patch apart, `interleaved` keeps pixels together.
//!
//! Invariant: the bits written are those of the table and the padding, moved and never
//! computed with, and every element of a patch is written, once.

mod interleaved;
mod planar;

use std::ops::Range;

pub use interleaved::Interleaved;
pub use planar::Planar;

/// What each byte of each channel becomes, red first.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueTable<T>(pub [[T; 256]; 3]);

/// What a patch consists of: `f32`, or the bits of a `bf16`.
pub trait Element: sealed::Element {}

impl Element for f32 {}
impl Element for u16 {}

mod sealed {
    pub trait Element: Copy + Send + Sync {}

    impl Element for f32 {}
    impl Element for u16 {}
}

/// Pixels from `at` on that lie in a row of `width` pixels beginning at `left`: how many
/// of `len` come before the row, and which pixels of the row follow.
fn overlap(at: usize, len: usize, left: usize, width: usize) -> (usize, Range<usize>) {
    let start = at.saturating_sub(left).min(width);
    let end = (at + len).saturating_sub(left).min(width);
    (left.saturating_sub(at).min(len), start..end)
}

#[cfg(test)]
mod tests;
