//! Joins the data chunks and inflates them to filtered rows.

use flate2::{Decompress, FlushDecompress, Status};

use super::super::super::memory;
use super::super::error::DecodeError;
use super::chunks::Chunks;
use super::error::{corrupt, truncated};

/// Inflates rows of the given lengths, filter bytes included.
///
/// The result is shorter if the stream ends early at the end of a row. An early end anywhere else is
/// an error. Nothing after the last row is read, so a stream without an end marker is accepted.
///
/// The last row is requested separately, and only while there is input. Pillow inflates row by row:
/// it refuses a truncated stream even if the inflater could complete the pixels from a pending copy.
pub(super) fn inflate(
    chunks: &mut Chunks<'_>,
    rows: &(impl Iterator<Item = usize> + Clone),
) -> Result<Vec<u8>, DecodeError> {
    let length = rows.clone().sum();
    let before_last = length - rows.clone().last().unwrap_or(0);
    // Not zeroed: an image is too large to be written twice.
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
                // Pillow ignores an end marker in a piece that yields no pixels, and reports truncation.
                if data.len() > before && is_boundary(rows.clone(), data.len()) {
                    return Ok(data);
                }
                return Err(truncated("the pixel data"));
            }
            if data.len() < target {
                // The inflater needs more input, or a preset dictionary, which PNG does not have.
                break;
            }
        }
    }
    Err(truncated("the pixel data"))
}

/// Inflates from `piece` to the end of `data`, up to the length `target`, for which it has capacity.
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
    // SAFETY: the inflater initialised as many bytes of the spare capacity as it reports.
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
