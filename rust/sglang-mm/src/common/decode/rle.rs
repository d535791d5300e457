//! The run-length encoding of BMP: pairs of a count and a value, with escape codes for the end of a
//! row, jumps and literals.

use super::super::memory::{OutOfMemory, empty};
use super::cursor::Cursor;
use crate::common::Size;

/// How a run's value byte encodes indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// One index per byte.
    Byte,
    /// Two indices per byte, used in turn.
    Nibble,
}

impl Unit {
    /// The two indices that a run of `value` repeats.
    fn pair(self, value: u8) -> [u8; 2] {
        match self {
            Self::Byte => [value, value],
            Self::Nibble => [value >> 4, value & 15],
        }
    }
}

/// Expands runs to one index per byte, in the order of the file's rows. `None` if the runs end before
/// the image is complete.
///
/// A run stops at the end of its row. Literals may continue in the next row, as in Pillow.
pub(super) fn expand(
    mut cursor: Cursor<'_>,
    unit: Unit,
    size: Size,
) -> Result<Option<Vec<u8>>, OutOfMemory> {
    let total = size.pixels();
    let mut indices = empty(total)?;
    let mut column = 0;
    while indices.len() < total {
        let Some([count, value]) = cursor.array() else {
            break;
        };
        match (count, value) {
            (0, 0) => {
                let row_end = indices.len().next_multiple_of(size.width);
                indices.resize(row_end, 0);
                column = 0;
            }
            (0, 1) => break,
            (0, 2) => {
                let Some([right, up]) = cursor.array() else {
                    break;
                };
                let jump = usize::from(right) + usize::from(up) * size.width;
                indices.resize(total.min(indices.len() + jump), 0);
                column = indices.len() % size.width;
            }
            (0, count) => {
                let complete = literals(&mut cursor, unit, count, total, &mut indices);
                if !complete || indices.len() == total {
                    break;
                }
                column += usize::from(count);
            }
            (count, value) => {
                let count = usize::from(count).min(size.width.saturating_sub(column));
                indices.extend(unit.pair(value).into_iter().cycle().take(count));
                column += count;
            }
        }
    }
    Ok((indices.len() >= total).then_some(indices))
}

/// Copies `count` indices, which are padded to a multiple of 16 bits in the file. Returns false if the
/// file ends within them.
fn literals(
    cursor: &mut Cursor<'_>,
    unit: Unit,
    count: u8,
    total: usize,
    indices: &mut Vec<u8>,
) -> bool {
    let count = usize::from(count).min(total - indices.len());
    let stored = match unit {
        Unit::Byte => count,
        Unit::Nibble => count.div_ceil(2),
    };
    let bytes = cursor.read(stored);
    match unit {
        Unit::Byte => indices.extend_from_slice(bytes),
        Unit::Nibble => {
            let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
            indices.extend(nibbles.take(count));
        }
    }
    let complete = bytes.len() == stored;
    cursor.skip(cursor.position() % 2);
    complete
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_expand_to_indices() {
        type Row<'a> = (&'a str, Unit, &'a [u8], Option<&'a [u8]>);
        #[rustfmt::skip]
        let rows: &[Row<'_>] = &[
            ("one run per row", Unit::Byte, &[3, 7, 0, 0, 3, 8, 0, 0], Some(&[7, 7, 7, 8, 8, 8])),
            ("a run stops at the end of its row", Unit::Byte, &[9, 7, 0, 0, 9, 8], Some(&[7, 7, 7, 8, 8, 8])),
            ("nibbles alternate", Unit::Nibble, &[3, 0x12, 0, 0, 3, 0x34], Some(&[1, 2, 1, 3, 4, 3])),
            ("a jump fills with zeros", Unit::Byte, &[0, 2, 1, 1, 2, 9], Some(&[0, 0, 0, 0, 9, 9])),
            ("literals are padded", Unit::Byte, &[0, 3, 1, 2, 3, 0, 0, 0, 3, 4], Some(&[1, 2, 3, 4, 4, 4])),
            ("an early end", Unit::Byte, &[3, 7, 0, 1], None),
            ("empty", Unit::Byte, &[], None),
            ("truncated literals", Unit::Nibble, &[0, 6, 0x12], None),
        ];
        let size = Size {
            width: 3,
            height: 2,
        };
        for (name, unit, bytes, expected) in rows {
            let indices = expand(Cursor::at(bytes, 0), *unit, size).unwrap();
            assert_eq!(indices.as_deref(), *expected, "{name}");
        }
    }
}
