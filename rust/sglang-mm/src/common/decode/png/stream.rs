//! The compressed pixel data: the data chunks joined and inflated to filtered rows.

use flate2::{Decompress, FlushDecompress, Status};

use super::super::super::memory::zeroed;
use super::super::error::DecodeError;
use super::chunks::Chunks;
use super::{corrupt, cut};

/// Inflate rows of the lengths given, filter bytes counted.
///
/// The result is shorter if the stream says that it ends, which only the end of a row allows. A
/// stream with no end behind the last row is as good: what follows the last pixel is not looked at.
///
/// The last row is asked for by itself, and only while there are bytes to read. So a stream that is
/// cut but has all pixels in its last, pending copy is refused, as by Pillow, which goes row by row.
pub(super) fn inflate(
    chunks: &mut Chunks<'_>,
    rows: &(impl Iterator<Item = usize> + Clone),
) -> Result<Vec<u8>, DecodeError> {
    let mut data = zeroed(rows.clone().sum())?;
    let before_last = data.len() - rows.clone().last().unwrap_or(0);
    let mut inflater = Decompress::new(true);
    let mut filled = 0;
    while let Some(mut piece) = chunks.next_piece()? {
        let before = filled;
        while !piece.is_empty() {
            let target = if filled < before_last {
                before_last
            } else {
                data.len()
            };
            let read = inflater.total_in();
            let status = inflater
                .decompress(piece, &mut data[filled..target], FlushDecompress::None)
                .map_err(|_| corrupt("the compressed data"))?;
            piece = &piece[(inflater.total_in() - read) as usize..];
            filled = inflater.total_out() as usize;
            if filled == data.len() {
                return Ok(data);
            }
            if status == Status::StreamEnd {
                // An end that comes in a piece of its own is not seen by Pillow, which waits on.
                if filled > before && is_boundary(rows.clone(), filled) {
                    data.truncate(filled);
                    return Ok(data);
                }
                return Err(cut("the pixel data"));
            }
            if filled < target {
                // It wants more input, or a dictionary that there is not.
                break;
            }
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
