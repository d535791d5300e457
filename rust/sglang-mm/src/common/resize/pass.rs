//! One pass over an image: how its rows are spread over threads.
//!
//! Invariant: a band of output rows is written by one thread and read by none.

use super::{OutOfMemory, axis::Axis, scalar, zeroed};
use crate::common::{Size, par};

/// Bytes of output that one task writes: enough to be worth a task, few enough that a
/// small image still fills the pool.
const BAND_BYTES: usize = 32 * 1024;

/// Resizes along the rows; the height stays.
pub(super) fn horizontal(src: &[u8], from: Size, axis: &Axis) -> Result<Vec<u8>, OutOfMemory> {
    let in_row = from.width * scalar::CHANNELS;
    rows(
        Size {
            width: axis.len(),
            ..from
        },
        |y, row| scalar::horizontal(&src[y * in_row..][..in_row], axis, row),
    )
}

/// Resizes along the columns; the width stays.
pub(super) fn vertical(src: &[u8], from: Size, axis: &Axis) -> Result<Vec<u8>, OutOfMemory> {
    rows(
        Size {
            height: axis.len(),
            ..from
        },
        |y, row| scalar::vertical(src, axis.taps(y), axis.precision(), row),
    )
}

/// An image of size `to` whose rows `fill` writes, band by band.
fn rows<F>(to: Size, fill: F) -> Result<Vec<u8>, OutOfMemory>
where
    F: Fn(usize, &mut [u8]) + Send + Sync,
{
    let mut out = zeroed(to.rgb_len().ok_or(OutOfMemory)?)?;
    let row_len = to.width * scalar::CHANNELS;
    let band_rows = (BAND_BYTES / row_len).max(1);
    par::for_chunks_mut(&mut out, band_rows * row_len, |band, window| {
        for (row, out) in window.chunks_exact_mut(row_len).enumerate() {
            fill(band * band_rows + row, out);
        }
    });
    Ok(out)
}
