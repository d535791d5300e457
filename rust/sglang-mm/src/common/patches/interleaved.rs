//! Patches with interleaved channels: `[y][x][channel]`.

use std::mem::MaybeUninit;

use super::table::{Element, ValueTable, overlap};
use crate::common::resize::{Canvas, ResizeError, Resizing, Strip, fill};

/// Writes rows into patches of the layout `[y][x][channel]`. Patches come row by row. A band is one
/// row of patches.
#[derive(Clone, Copy, Debug)]
pub struct Interleaved<'a, T> {
    /// The value of each byte.
    pub table: &'a ValueTable<T>,
    /// The padding around the image, by channel.
    pub padding: [T; 3],
    /// The side of a patch in pixels.
    pub patch: usize,
    /// Patches per row.
    pub columns: usize,
    /// Padding columns to the left of the image, in pixels.
    pub left: usize,
}

impl<T: Element> Interleaved<'_, T> {
    /// Elements per patch.
    #[must_use]
    pub fn patch_len(&self) -> usize {
        3 * self.patch * self.patch
    }

    /// Elements of `rows` rows of patches. `None` if that overflows.
    #[must_use]
    pub fn len(&self, rows: usize) -> Option<usize> {
        let patch = self.patch.checked_mul(self.patch)?.checked_mul(3)?;
        // Multiplied in this order, so that an overflow of one row is found even if `rows` is 0.
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
    /// If `out` does not have [`Self::len`] elements.
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
        let canvas = Canvas {
            top,
            height: rows * self.patch,
            band_rows: self.patch,
            strip_rows: self.patch,
            band_len: self.columns * self.patch_len(),
        };
        // SAFETY: `out` consists of whole bands, a band is one strip, and `write` writes it completely.
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
        let (before, visible) = overlap(
            column * self.patch,
            self.patch,
            self.left,
            strip.row_len / 3,
        );
        if visible.len() < self.patch || strip.rows.len() < self.patch * strip.row_len {
            for pixel in patch.chunks_exact_mut(3) {
                pixel.copy_from_slice(&self.padding.map(MaybeUninit::new));
            }
        }
        let lines = patch.chunks_exact_mut(self.patch * 3).skip(strip.above);
        for (line, row) in lines.zip(strip.rows.chunks_exact(strip.row_len)) {
            let pixels = row[visible.start * 3..visible.end * 3].chunks_exact(3);
            for (value, pixel) in line[before * 3..].chunks_exact_mut(3).zip(pixels) {
                value[0].write(red[usize::from(pixel[0])]);
                value[1].write(green[usize::from(pixel[1])]);
                value[2].write(blue[usize::from(pixel[2])]);
            }
        }
    }
}
