//! The grid of a resized image: its patches, and its tokens, each of which merges several
//! patches.
//!
//! Invariant: the number of elements of one token does not overflow, so no unchecked product
//! here overflows.

use std::num::NonZeroUsize;

use crate::common::Size;

/// The sizes of patches and tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct PatchGrid {
    patch: NonZeroUsize,
    merge: NonZeroUsize,
    factor: NonZeroUsize,
    patch_len: usize,
}

impl PatchGrid {
    /// A patch has `patch` pixels on each side and `frames` copies of a still image. A token
    /// has `merge` patches on each side. Returns `None` if the elements of a token would
    /// exceed the address space.
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

    /// Pixels along each side of a token. The sides of a resized image are multiples of it.
    pub(super) fn factor(self) -> NonZeroUsize {
        self.factor
    }

    /// Number of elements of a patch.
    pub(super) fn patch_len(self) -> usize {
        self.patch_len
    }

    /// Patches along time, height and width of an image of `size`, whose sides must be multiples
    /// of [`Self::factor`].
    pub(super) fn grid(self, size: Size) -> Option<[u32; 3]> {
        let side = |pixels: usize| u32::try_from(pixels / self.patch).ok();
        Some([1, side(size.height)?, side(size.width)?])
    }

    /// Number of elements of all patches of `grid`.
    pub(super) fn elements(self, [time, height, width]: [u32; 3]) -> Option<usize> {
        let patches = (time as usize).checked_mul(height as usize)?;
        patches
            .checked_mul(width as usize)?
            .checked_mul(self.patch_len)
    }

    /// Number of tokens of an image in the prompt.
    pub(super) fn tokens(self, [time, height, width]: [u32; 3]) -> usize {
        let sides = [height, width].map(|side| side as usize / self.merge);
        (time as usize)
            .saturating_mul(sides[0])
            .saturating_mul(sides[1])
    }
}
