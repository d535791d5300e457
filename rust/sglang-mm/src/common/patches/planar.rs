//! Patches with separate channels: `[channel][copy][y][x]`.

use std::mem::MaybeUninit;

use super::table::{Element, ValueTable, overlap};
use crate::common::resize::{Canvas, ResizeError, Resizing, Strip, fill};

/// Writes rows into patches of the layout `[channel][copy][y][x]`.
///
/// Patches come row by row within blocks of `merge` by `merge` patches, and blocks come row by
/// row. A band is one row of blocks.
#[derive(Clone, Copy, Debug)]
pub struct Planar<'a, T> {
    /// The value of each byte.
    pub table: &'a ValueTable<T>,
    /// The padding around the image, by channel.
    pub padding: [T; 3],
    /// The side of a patch in pixels.
    pub patch: usize,
    /// Patches per row. A multiple of `merge`.
    pub columns: usize,
    /// The side of a block in patches. 1 keeps all patches in row order.
    pub merge: usize,
    /// Copies of each channel in a patch: the number of video frames that a still image replaces.
    pub copies: usize,
    /// Padding columns to the left of the image, in pixels.
    pub left: usize,
}

impl<T: Element> Planar<'_, T> {
    /// Elements per patch.
    #[must_use]
    pub fn patch_len(&self) -> usize {
        3 * self.copies * self.patch * self.patch
    }

    /// Elements of `rows` rows of patches. `None` if that overflows.
    #[must_use]
    pub fn len(&self, rows: usize) -> Option<usize> {
        let plane = self.patch.checked_mul(self.patch)?;
        let patch = plane.checked_mul(3)?.checked_mul(self.copies)?;
        self.columns.checked_mul(patch)?.checked_mul(rows)
    }

    /// Writes `rows` rows of patches. The resized image starts `top` pixels below the upper edge and
    /// [`Self::left`] pixels from the left edge, with padding around it.
    ///
    /// # Errors
    ///
    /// As [`resize_into`](crate::common::resize::resize_into).
    ///
    /// # Panics
    ///
    /// If `out` does not have [`Self::len`] elements, or a side is not a whole number of blocks.
    pub fn fill<'o>(
        &self,
        resizing: &Resizing<'_>,
        top: usize,
        rows: usize,
        out: &'o mut [MaybeUninit<T>],
    ) -> Result<&'o mut [T], ResizeError> {
        assert_eq!(
            self.len(rows),
            Some(out.len()),
            "the output length does not match the patches"
        );
        let blocks = [rows, self.columns].map(|patches| patches.is_multiple_of(self.merge));
        assert_eq!([true; 2], blocks, "a side is not a whole number of blocks");
        let canvas = Canvas {
            top,
            height: rows * self.patch,
            band_rows: self.merge * self.patch,
            strip_rows: self.patch,
            band_len: self.merge * self.columns * self.patch_len(),
        };
        // SAFETY: `out` consists of whole bands, and a band of whole blocks. A strip is one row of
        // patches. The patches do not overlap, and `write` writes each completely.
        unsafe {
            fill(resizing, canvas, out, |y, strip, band| {
                self.write(y, strip, band);
            })
        }
    }

    /// Writes the row of patches that starts at canvas row `y` into its band.
    fn write(&self, y: usize, strip: Strip<'_>, band: &mut [MaybeUninit<T>]) {
        let patch_row = y / self.patch % self.merge;
        for column in 0..self.columns {
            let (block, within) = (column / self.merge, column % self.merge);
            let index = (block * self.merge + patch_row) * self.merge + within;
            let patch = &mut band[index * self.patch_len()..][..self.patch_len()];
            self.write_patch(column, strip, patch);
        }
    }

    fn write_patch(&self, column: usize, strip: Strip<'_>, patch: &mut [MaybeUninit<T>]) {
        let (before, visible) = overlap(
            column * self.patch,
            self.patch,
            self.left,
            strip.row_len / 3,
        );
        let plane = self.patch * self.patch;
        let (red, others) = patch.split_at_mut(self.copies * plane);
        let (green, blue) = others.split_at_mut(self.copies * plane);
        let channels = [red, green, blue];
        let mut planes = channels.map(|copies| copies.split_at_mut(plane));
        if visible.len() < self.patch || strip.rows.len() < self.patch * strip.row_len {
            for ((first, _), padding) in planes.iter_mut().zip(self.padding) {
                first.fill(MaybeUninit::new(padding));
            }
        }
        let [(red, _), (green, _), (blue, _)] = &mut planes;
        let [reds, greens, blues] = &self.table.0;
        for (y, row) in strip.rows.chunks_exact(strip.row_len).enumerate() {
            let line = (strip.above + y) * self.patch + before..;
            let pixels = row[visible.start * 3..visible.end * 3].chunks_exact(3);
            let reds_out = &mut red[line.clone()];
            let greens_out = &mut green[line.clone()];
            let blues_out = &mut blue[line];
            for (((pixel, red), green), blue) in pixels.zip(reds_out).zip(greens_out).zip(blues_out)
            {
                red.write(reds[usize::from(pixel[0])]);
                green.write(greens[usize::from(pixel[1])]);
                blue.write(blues[usize::from(pixel[2])]);
            }
        }
        for (first, others) in planes {
            for copy in others.chunks_exact_mut(plane) {
                copy.copy_from_slice(first);
            }
        }
    }
}
