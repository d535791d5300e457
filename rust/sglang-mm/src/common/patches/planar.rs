//! Patches whose channels lie apart: `[channel][copy][y][x]`.

use super::{Element, ValueTable, overlap};
use crate::common::resize::Canvas;

/// Writes rows into patches of the layout `[channel][copy][y][x]`.
///
/// Patches follow one another row by row, within blocks of `merge` by `merge` patches,
/// and blocks do the same. A band is one row of blocks.
#[derive(Clone, Copy, Debug)]
pub struct Planar<'a, T> {
    /// What a byte becomes.
    pub table: &'a ValueTable<T>,
    /// What surrounds the image, by channel.
    pub padding: [T; 3],
    /// Pixels along a side of a patch.
    pub patch: usize,
    /// Patches side by side; a multiple of `merge`.
    pub columns: usize,
    /// Patches along a side of a block: 1 keeps all patches in plain order.
    pub merge: usize,
    /// How often each channel stands in a patch: frames that a still image stands for.
    pub copies: usize,
    /// Columns of pixels before the image.
    pub left: usize,
}

impl<T: Element> Planar<'_, T> {
    /// Elements of a patch.
    #[must_use]
    pub fn patch_len(&self) -> usize {
        3 * self.copies * self.patch * self.patch
    }

    /// The canvas of `patch_rows` rows of patches with the image `top` rows below its
    /// upper edge.
    #[must_use]
    pub fn canvas(&self, top: usize, patch_rows: usize) -> Canvas {
        Canvas {
            top,
            height: patch_rows * self.patch,
            band_rows: self.merge * self.patch,
            band_len: self.merge * self.columns * self.patch_len(),
        }
    }

    /// Writes canvas row `y` into its band: the RGB bytes of an image row, or padding.
    ///
    /// # Panics
    ///
    /// When `band` is none of [`Self::canvas`].
    pub fn write(&self, y: usize, row: Option<&[u8]>, band: &mut [T]) {
        let row = row.unwrap_or_default();
        let (patch_row, y) = (y / self.patch % self.merge, y % self.patch);
        let plane = self.patch * self.patch;
        for column in 0..self.columns {
            let (block, within) = (column / self.merge, column % self.merge);
            let patch = (block * self.merge + patch_row) * self.merge + within;
            let patch = &mut band[patch * self.patch_len()..][..self.patch_len()];
            let (before, seen) = overlap(column * self.patch, self.patch, self.left, row.len() / 3);
            let pixels = &row[seen.start * 3..seen.end * 3];
            for (channel, planes) in patch.chunks_exact_mut(self.copies * plane).enumerate() {
                let (table, padding) = (&self.table.0[channel], self.padding[channel]);
                for copy in planes.chunks_exact_mut(plane) {
                    let line = &mut copy[y * self.patch..][..self.patch];
                    if seen.len() < self.patch {
                        line.fill(padding);
                    }
                    for (value, pixel) in line[before..].iter_mut().zip(pixels.chunks_exact(3)) {
                        *value = table[usize::from(pixel[channel])];
                    }
                }
            }
        }
    }
}
