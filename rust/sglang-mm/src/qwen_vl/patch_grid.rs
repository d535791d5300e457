//! How a resized picture is cut: patches, and tokens of merged patches.
//!
//! Invariant: the elements of one token can be counted, so no product here overflows.

use std::num::NonZeroUsize;

use crate::common::Size;

/// Sides of patches and tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct PatchGrid {
    patch: NonZeroUsize,
    merge: NonZeroUsize,
    factor: NonZeroUsize,
    patch_len: usize,
}

impl PatchGrid {
    /// `patch` pixels along a patch, `merge` patches along a token, `frames` copies of a
    /// still picture in a patch. Nothing if a token has more elements than can be
    /// addressed.
    pub(super) fn new(
        patch: NonZeroUsize,
        merge: NonZeroUsize,
        frames: NonZeroUsize,
    ) -> Option<Self> {
        let factor = patch.checked_mul(merge)?;
        let elements = factor
            .checked_mul(factor)?
            .checked_mul(frames)?
            .get()
            .checked_mul(3 * size_of::<f32>())?;
        isize::try_from(elements).ok()?;
        Some(Self {
            patch,
            merge,
            factor,
            patch_len: 3 * frames.get() * patch.get() * patch.get(),
        })
    }

    /// Pixels along a token: what each side of a picture must divide by.
    pub(super) fn factor(self) -> NonZeroUsize {
        self.factor
    }

    /// Elements of a patch.
    pub(super) fn patch_len(self) -> usize {
        self.patch_len
    }

    /// Patches along time, height and width of a picture of `size`, whose sides divide.
    pub(super) fn grid(self, size: Size) -> Option<[u32; 3]> {
        let side = |pixels: usize| u32::try_from(pixels / self.patch).ok();
        Some([1, side(size.height)?, side(size.width)?])
    }

    /// Elements of all patches of `grid`.
    pub(super) fn elements(self, [time, height, width]: [u32; 3]) -> Option<usize> {
        let patches = (time as usize).checked_mul(height as usize)?;
        patches
            .checked_mul(width as usize)?
            .checked_mul(self.patch_len)
    }

    /// Tokens that a picture takes in the prompt.
    pub(super) fn tokens(self, [time, height, width]: [u32; 3]) -> usize {
        let sides = [height, width].map(|side| side as usize / self.merge);
        (time as usize)
            .saturating_mul(sides[0])
            .saturating_mul(sides[1])
    }
}
