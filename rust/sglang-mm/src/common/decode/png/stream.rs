//! The compressed pixel data: the data chunks joined and inflated to filtered rows.

use flate2::{Decompress, FlushDecompress, Status};

use super::super::super::memory;
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
    let length = rows.clone().sum();
    let before_last = length - rows.clone().last().unwrap_or(0);
    // Not zeroed: a picture is too large to be written twice.
    let mut data = memory::empty(length)?;
    let mut inflater = Decompress::new(true);
    while let Some(mut piece) = chunks.next_piece()? {
        let before = data.len();
        while !piece.is_empty() {
            let target = if data.len() < before_last {
                before_last
            } else {
                length
            };
            let read = inflater.total_in();
            let status = append(&mut inflater, piece, &mut data, target)?;
            piece = &piece[(inflater.total_in() - read) as usize..];
            if data.len() == length {
                return Ok(data);
            }
            if status == Status::StreamEnd {
                // An end that comes in a piece of its own is not seen by Pillow, which waits on.
                if data.len() > before && is_boundary(rows.clone(), data.len()) {
                    return Ok(data);
                }
                return Err(cut("the pixel data"));
            }
            if data.len() < target {
                // It wants more input, or a dictionary that there is not.
                break;
            }
        }
    }
    Err(cut("the pixel data"))
}

/// Inflate from `piece` to the end of `data`, which may grow to `target` and has room for it.
fn append(
    inflater: &mut Decompress,
    piece: &[u8],
    data: &mut Vec<u8>,
    target: usize,
) -> Result<Status, DecodeError> {
    let room = target - data.len();
    let room = &mut data.spare_capacity_mut()[..room];
    let written = inflater.total_out();
    let status = inflater
        .decompress_uninit(piece, room, FlushDecompress::None)
        .map_err(|_| corrupt("the compressed data"))?;
    let written = (inflater.total_out() - written) as usize;
    // SAFETY: the inflater initialised as many bytes of the room as it counts.
    unsafe { data.set_len(data.len() + written) };
    Ok(status)
}

fn is_boundary(mut rows: impl Iterator<Item = usize>, filled: usize) -> bool {
    let mut end = 0;
    rows.any(|row| {
        end += row;
        end == filled
    })
}
