//! The table of values that patches are made of, and the overlap of a patch with the image.

use std::ops::Range;

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
pub(super) fn overlap(at: usize, len: usize, left: usize, width: usize) -> (usize, Range<usize>) {
    let start = at.saturating_sub(left).min(width);
    let end = (at + len).saturating_sub(left).min(width);
    (left.saturating_sub(at).min(len), start..end)
}
