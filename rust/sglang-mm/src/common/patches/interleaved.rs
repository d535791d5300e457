//! Patches whose pixels stay together: `[y][x][channel]`.

use std::mem::MaybeUninit;

use super::{Element, ValueTable, overlap};
use crate::common::resize::{Canvas, ResizeError, Resizing, Strip, fill};

/// Writes rows into patches of the layout `[y][x][channel]`, which follow one another
/// row by row. A band is one row of patches.
#[derive(Clone, Copy, Debug)]
pub struct Interleaved<'a, T> {
    /// What a byte becomes.
    pub table: &'a ValueTable<T>,
    /// What surrounds the image, by channel.
    pub padding: [T; 3],
    /// Pixels along a side of a patch.
    pub patch: usize,
    /// Patches side by side.
    pub columns: usize,
    /// Columns of pixels before the image.
    pub left: usize,
}

impl<T: Element> Interleaved<'_, T> {
    /// Elements of a patch.
    #[must_use]
    pub fn patch_len(&self) -> usize {
        3 * self.patch * self.patch
    }

    /// Elements of `rows` rows of patches, or nothing if that cannot be counted.
    #[must_use]
    pub fn len(&self, rows: usize) -> Option<usize> {
        let patch = self.patch.checked_mul(self.patch)?.checked_mul(3)?;
        // A row of patches by itself too: it is counted even where there is none.
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
    /// When `out` does not have [`Self::len`] elements.
    pub fn fill<'o>(
        &self,
        resizing: &Resizing<'_>,
        top: usize,
        rows: usize,
        out: &'o mut [MaybeUninit<T>],
    ) -> Result<&'o mut [T], ResizeError> {
        assert_eq!(self.len(rows), Some(out.len()), "patches need other room");
        let canvas = Canvas {
            top,
            height: rows * self.patch,
            band_rows: self.patch,
            strip_rows: self.patch,
            band_len: self.columns * self.patch_len(),
        };
        // SAFETY: whole bands make `out`, a band is a strip, and a strip is written whole.
        unsafe {
            fill(resizing, canvas, out, |_, strip, band| {
                self.write(strip, band);
            })
        }
    }

    /// Writes a row of patches.
    fn write(&self, strip: Strip<'_>, band: &mut [MaybeUninit<T>]) {
        for (column, patch) in band.chunks_exact_mut(self.patch_len()).enumerate() {
            self.write_patch(column, strip, patch);
        }
    }

    fn write_patch(&self, column: usize, strip: Strip<'_>, patch: &mut [MaybeUninit<T>]) {
        let [red, green, blue] = &self.table.0;
        let (before, seen) = overlap(
            column * self.patch,
            self.patch,
            self.left,
            strip.row_len / 3,
        );
        if seen.len() < self.patch || strip.rows.len() < self.patch * strip.row_len {
            for pixel in patch.chunks_exact_mut(3) {
                pixel.copy_from_slice(&self.padding.map(MaybeUninit::new));
            }
        }
        let lines = patch.chunks_exact_mut(self.patch * 3).skip(strip.above);
        for (line, row) in lines.zip(strip.rows.chunks_exact(strip.row_len)) {
            let pixels = row[seen.start * 3..seen.end * 3].chunks_exact(3);
            for (value, pixel) in line[before * 3..].chunks_exact_mut(3).zip(pixels) {
                value[0].write(red[usize::from(pixel[0])]);
                value[1].write(green[usize::from(pixel[1])]);
                value[2].write(blue[usize::from(pixel[2])]);
            }
        }
    }
}
