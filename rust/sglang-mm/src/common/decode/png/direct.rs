//! Fast path for whole RGB and RGBA images that are not interlaced. The pixels take no more bytes than
//! the filtered rows, so they are written in place.

use super::super::super::memory::zeroed;
use super::super::error::DecodeError;
use super::super::pixels::RgbImage;
use super::{color::pick, error::corrupt, filter};
use crate::common::Size;

/// Rows that are unfiltered together.
const GROUP: usize = 4;

/// The image in `data`: rows of `channels` bytes per pixel, 3 or 4, each after its filter byte. Rows
/// after the end of the data are black.
pub(super) fn unfilter(
    mut data: Vec<u8>,
    size: Size,
    channels: usize,
) -> Result<RgbImage, DecodeError> {
    let (stored, length) = (1 + size.width * channels, size.width * 3);
    let rows = data.len() / stored;
    let mut scratch = zeroed(size.width * channels)?;
    let zero_row = zeroed(length)?;
    for first in (0..rows).step_by(GROUP) {
        let mut kinds = [0; GROUP];
        let kinds = &mut kinds[..GROUP.min(rows - first)];
        for (row, kind) in (first..).zip(kinds.iter_mut()) {
            *kind = data[row * stored];
            move_row(&mut data, row, channels, &mut scratch);
        }
        let (done, rest) = data.split_at_mut(first * length);
        let above = match first {
            0 => &zero_row,
            _ => &done[done.len() - length..],
        };
        filter::undo_rgb(kinds, above, &mut rest[..kinds.len() * length])
            .ok_or_else(|| corrupt("a row filter that does not exist"))?;
    }
    // The capacity is not shrunk: the next image would then need fresh pages, which cost more.
    data.truncate(rows * length);
    data.resize(size.height * length, 0);
    Ok(RgbImage {
        height: size.height,
        width: size.width,
        pixels: data,
    })
}

/// Moves the bytes of `row` to their place in the image and drops alpha. That is correct before
/// unfiltering, because filters do not mix channels.
///
/// The place is before the bytes or overlaps them, and its old content is no longer needed.
fn move_row(data: &mut [u8], row: usize, channels: usize, scratch: &mut [u8]) {
    let from = row * (1 + scratch.len()) + 1;
    let from = from..from + scratch.len();
    let to = row * (scratch.len() / channels * 3);
    if channels == 3 {
        data.copy_within(from, to);
        return;
    }
    scratch.copy_from_slice(&data[from]);
    pick(scratch, &mut data[to..], |[r, g, b, _]: [u8; 4]| [r, g, b]);
}
