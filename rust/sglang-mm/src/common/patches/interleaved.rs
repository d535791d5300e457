//! Patches whose pixels stay together: `[y][x][channel]`.

use super::{Element, ValueTable, overlap};
use crate::common::resize::{Canvas, Strip};

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

    /// The canvas of `patch_rows` rows of patches with the image `top` rows below its
    /// upper edge.
    #[must_use]
    pub fn canvas(&self, top: usize, patch_rows: usize) -> Canvas {
        Canvas {
            top,
            height: patch_rows * self.patch,
            band_rows: self.patch,
            strip_rows: self.patch,
            band_len: self.columns * self.patch_len(),
        }
    }

    /// Writes a row of patches into its band.
    ///
    /// # Panics
    ///
    /// When `band` is none of [`Self::canvas`].
    pub fn write(&self, strip: Strip<'_>, band: &mut [T]) {
        for (column, patch) in band.chunks_exact_mut(self.patch_len()).enumerate() {
            self.write_patch(column, strip, patch);
        }
    }

    fn write_patch(&self, column: usize, strip: Strip<'_>, patch: &mut [T]) {
        let [red, green, blue] = &self.table.0;
        let (before, seen) = overlap(
            column * self.patch,
            self.patch,
            self.left,
            strip.row_len / 3,
        );
        if seen.len() < self.patch || strip.rows.len() < self.patch * strip.row_len {
            for pixel in patch.chunks_exact_mut(3) {
                pixel.copy_from_slice(&self.padding);
            }
        }
        let lines = patch.chunks_exact_mut(self.patch * 3).skip(strip.above);
        for (line, row) in lines.zip(strip.rows.chunks_exact(strip.row_len)) {
            let pixels = row[seen.start * 3..seen.end * 3].chunks_exact(3);
            for (value, pixel) in line[before * 3..].chunks_exact_mut(3).zip(pixels) {
                value[0] = red[usize::from(pixel[0])];
                value[1] = green[usize::from(pixel[1])];
                value[2] = blue[usize::from(pixel[2])];
            }
        }
    }
}
