//! Patches whose channels lie apart: `[channel][copy][y][x]`.

use std::mem::MaybeUninit;

use super::{Element, ValueTable, overlap};
use crate::common::resize::{Canvas, ResizeError, Resizing, Strip, fill};

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

    /// Elements of `rows` rows of patches, or nothing if that cannot be counted.
    #[must_use]
    pub fn len(&self, rows: usize) -> Option<usize> {
        let plane = self.patch.checked_mul(self.patch)?;
        let patch = plane.checked_mul(3)?.checked_mul(self.copies)?;
        self.columns.checked_mul(patch)?.checked_mul(rows)
    }

    /// Writes `rows` rows of patches: the resized picture `top` pixels below their upper
    /// edge and [`Self::left`] from the left one, with padding around it.
    ///
    /// # Errors
    ///
    /// As [`resize_into`](crate::common::resize::resize_into).
    ///
    /// # Panics
    ///
    /// When `out` does not have [`Self::len`] elements, or blocks do not fill the rows.
    pub fn fill<'o>(
        &self,
        resizing: &Resizing<'_>,
        top: usize,
        rows: usize,
        out: &'o mut [MaybeUninit<T>],
    ) -> Result<&'o mut [T], ResizeError> {
        assert_eq!(self.len(rows), Some(out.len()), "patches need other room");
        let blocks = [rows, self.columns].map(|patches| patches.is_multiple_of(self.merge));
        assert_eq!([true; 2], blocks, "a block lacks patches");
        let canvas = Canvas {
            top,
            height: rows * self.patch,
            band_rows: self.merge * self.patch,
            strip_rows: self.patch,
            band_len: self.merge * self.columns * self.patch_len(),
        };
        // SAFETY: whole blocks make a band, and whole bands make `out`. A strip is a row of patches:
        // each of these lies in a place of its own, and is written whole.
        unsafe {
            fill(resizing, canvas, out, |y, strip, band| {
                self.write(y, strip, band);
            })
        }
    }

    /// Writes a row of patches, the one that begins with canvas row `y`, into its band.
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
        let (before, seen) = overlap(
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
        if seen.len() < self.patch || strip.rows.len() < self.patch * strip.row_len {
            for ((first, _), padding) in planes.iter_mut().zip(self.padding) {
                first.fill(MaybeUninit::new(padding));
            }
        }
        let [(red, _), (green, _), (blue, _)] = &mut planes;
        let [reds, greens, blues] = &self.table.0;
        for (y, row) in strip.rows.chunks_exact(strip.row_len).enumerate() {
            let line = (strip.above + y) * self.patch + before..;
            let pixels = row[seen.start * 3..seen.end * 3].chunks_exact(3);
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
