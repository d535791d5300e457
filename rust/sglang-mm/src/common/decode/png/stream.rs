//! The compressed pixel data: the data chunks joined and inflated to filtered rows.

use flate2::{Decompress, FlushDecompress, Status};

use super::super::error::DecodeError;
use super::chunks::Chunks;
use super::{corrupt, cut};

/// Inflate rows of the lengths given, filter bytes counted.
///
/// The result is shorter if the stream says that it ends, which only the end of a row allows. A
/// stream with no end behind the last row is as good: what follows the last pixel is not looked at.
pub(super) fn inflate(
    chunks: &mut Chunks<'_>,
    rows: &(impl Iterator<Item = usize> + Clone),
) -> Result<Vec<u8>, DecodeError> {
    let mut data = vec![0; rows.clone().sum()];
    let mut inflater = Decompress::new(true);
    let mut filled = 0;
    while let Some(piece) = chunks.next_piece()? {
        let status = inflater
            .decompress(piece, &mut data[filled..], FlushDecompress::None)
            .map_err(|_| corrupt("the compressed data"))?;
        let before = filled;
        filled = inflater.total_out() as usize;
        if filled == data.len() {
            return Ok(data);
        }
        // An end that comes in a piece of its own is not seen by Pillow, which waits for more.
        if status == Status::StreamEnd && filled > before && is_boundary(rows.clone(), filled) {
            data.truncate(filled);
            return Ok(data);
        }
    }
    Err(cut("the pixel data"))
}

fn is_boundary(mut rows: impl Iterator<Item = usize>, filled: usize) -> bool {
    let mut end = 0;
    rows.any(|row| {
        end += row;
        end == filled
    })
}
