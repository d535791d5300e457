//! Computes the three position rows (time, height, width) of a prompt with still images.
//!
//! A text token increases the position by one in all rows. For the tokens of an image, the
//! time row repeats the position at which the image starts. The height row adds the token's
//! row to that position, and the width row adds the token's column. The text after the image
//! continues at the start plus the longer side. This is the rule of `get_rope_index` in Hugging Face
//! transformers. For still images it is the same in every generation of the family.
//!
//! Invariant: every token gets exactly one position per row, and belongs to at most one item.

use std::iter::repeat_n;

use crate::common::memory::empty;

/// An image in an expanded prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSpan {
    /// Index of the first token.
    pub start: usize,
    /// Index of the last token.
    pub end: usize,
    /// Patches along time (1), height and width.
    pub grid: [u32; 3],
}

/// The positions of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MRope {
    /// Three rows, one after the other, each as long as the prompt.
    pub positions: Vec<i64>,
    /// Highest position, plus one, minus the length of the prompt.
    pub delta: i64,
}

/// Images and prompt do not match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MRopeError {
    /// The merge size is 0.
    #[error("mrope: merge_size must be positive")]
    ZeroMergeSize,
    /// The number of spans differs from the number of grids.
    #[error("mrope: {offsets} token span(s) but {grids} grid(s)")]
    Count {
        /// Number of spans.
        offsets: usize,
        /// Number of grids.
        grids: usize,
    },
    /// The memory for the positions could not be allocated.
    #[error("mrope: not enough memory for the positions of {len} tokens")]
    TooLong {
        /// Length of the prompt.
        len: usize,
    },
    /// A span overlaps or precedes the span before it, or exceeds the prompt.
    #[error(
        "mrope: item {item} at tokens {start} to {end} is out of order/bounds: \
         it must start at token {next} or later and end before token {len}"
    )]
    OutOfOrder {
        /// Index of the item.
        item: usize,
        /// Its first token.
        start: usize,
        /// Its last token.
        end: usize,
        /// Index of the first token after the preceding item.
        next: usize,
        /// Length of the prompt.
        len: usize,
    },
    /// The grid is that of a video, or its height or width is not a multiple of the merge size.
    #[error(
        "mrope: item {item} has grid {grid:?}, which is not a still image \
         whose height and width are multiples of merge_size {merge_size}"
    )]
    Grid {
        /// Index of the item.
        item: usize,
        /// Its grid.
        grid: [u32; 3],
        /// Patches along each side of a token.
        merge_size: usize,
    },
    /// The span does not have as many tokens as the grid.
    #[error(
        "mrope: item {item}: token span does not match grid {grid:?}: {span} token(s), not {tokens}"
    )]
    Span {
        /// Index of the item.
        item: usize,
        /// Its grid.
        grid: [u32; 3],
        /// Number of tokens of the span.
        span: usize,
        /// Number of tokens of the grid.
        tokens: u64,
    },
}

/// Computes the positions of an expanded prompt of `len` tokens with `items`, in order.
///
/// # Errors
///
/// If items overlap, are out of order, exceed the prompt, or do not have as many tokens as
/// their grids.
pub fn mrope_image_only(
    len: usize,
    items: &[ImageSpan],
    merge_size: usize,
) -> Result<MRope, MRopeError> {
    if merge_size == 0 {
        return Err(MRopeError::ZeroMergeSize);
    }
    let mut sides = Vec::with_capacity(items.len());
    let mut free = 0;
    for (item, span) in items.iter().enumerate() {
        sides.push(token_sides(item, *span, free, len, merge_size)?);
        free = span.end + 1;
    }

    let len_of_all = len.checked_mul(3);
    let mut positions = len_of_all
        .and_then(|len| empty(len).ok())
        .ok_or(MRopeError::TooLong { len })?;
    let mut next = 0;
    for axis in [Axis::Time, Axis::Height, Axis::Width] {
        next = row(&mut positions, axis, len, items.iter().zip(&sides));
    }
    Ok(MRope {
        positions,
        delta: next - len as i64,
    })
}

/// Checks an item's span and grid; returns its height and width in tokens.
fn token_sides(
    item: usize,
    span: ImageSpan,
    next: usize,
    len: usize,
    merge_size: usize,
) -> Result<[i64; 2], MRopeError> {
    let ImageSpan { start, end, grid } = span;
    if start < next || end < start || end >= len {
        return Err(MRopeError::OutOfOrder {
            item,
            start,
            end,
            next,
            len,
        });
    }
    let merge = merge_size as u64;
    let [time, height, width] = grid.map(u64::from);
    if time != 1 || height % merge != 0 || width % merge != 0 {
        return Err(MRopeError::Grid {
            item,
            grid,
            merge_size,
        });
    }
    let sides = [height / merge, width / merge];
    let tokens = sides[0] * sides[1];
    let span = end - start + 1;
    if tokens != span as u64 {
        return Err(MRopeError::Span {
            item,
            grid,
            span,
            tokens,
        });
    }
    Ok(sides.map(|side| side as i64))
}

#[derive(Clone, Copy)]
enum Axis {
    Time,
    Height,
    Width,
}

/// Appends the positions along one axis; returns the position after the last one.
fn row<'a>(
    positions: &mut Vec<i64>,
    axis: Axis,
    len: usize,
    items: impl Iterator<Item = (&'a ImageSpan, &'a [i64; 2])>,
) -> i64 {
    let (mut next, mut at) = (0, 0);
    for (span, &[height, width]) in items {
        next = text(positions, next, span.start - at);
        for y in 0..height {
            match axis {
                Axis::Time => positions.extend(repeat_n(next, width as usize)),
                Axis::Height => positions.extend(repeat_n(next + y, width as usize)),
                Axis::Width => positions.extend(next..next + width),
            }
        }
        next += height.max(width);
        at = span.end + 1;
    }
    text(positions, next, len - at)
}

/// Appends the positions of `count` text tokens, from `next`; returns the position after them.
fn text(positions: &mut Vec<i64>, next: i64, count: usize) -> i64 {
    let after = next + count as i64;
    positions.extend(next..after);
    after
}

#[cfg(test)]
mod tests {
    use super::{ImageSpan, MRope, MRopeError, mrope_image_only};

    fn span(start: usize, end: usize, grid: [u32; 3]) -> ImageSpan {
        ImageSpan { start, end, grid }
    }

    #[test]
    fn one_image_between_text() {
        let positions = [
            [0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7],
            [0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7],
            [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7],
        ]
        .concat();
        let expected = MRope {
            positions,
            delta: -3,
        };
        let items = [span(3, 8, [1, 4, 6])];
        assert_eq!(Ok(expected), mrope_image_only(11, &items, 2));
    }

    #[test]
    fn edge_cases() {
        type Row<'a> = (&'a str, usize, &'a [ImageSpan], &'a [i64], i64);
        #[rustfmt::skip]
        let cases: &[Row] = &[
            ("empty prompt", 0, &[], &[], 0),
            ("text only", 2, &[], &[0, 1, 0, 1, 0, 1], 0),
            ("image only", 2, &[span(0, 1, [1, 2, 4])], &[0, 0, 0, 0, 0, 1], 0),
            ("adjacent", 3, &[span(0, 0, [1, 2, 2]), span(1, 2, [1, 4, 2])], &[0, 1, 1, 0, 1, 2, 0, 1, 1], 0),
        ];
        for (name, len, items, positions, delta) in cases {
            let expected = MRope {
                positions: positions.to_vec(),
                delta: *delta,
            };
            assert_eq!(Ok(expected), mrope_image_only(*len, items, 2), "{name}");
        }
    }

    #[test]
    fn positions_larger_than_memory_are_refused() {
        for len in [usize::MAX, usize::MAX / 3, isize::MAX as usize / 24] {
            let error = mrope_image_only(len, &[], 2).unwrap_err();
            assert_eq!(MRopeError::TooLong { len }, error);
        }
    }

    #[test]
    fn invalid_items_are_refused() {
        let valid = span(1, 2, [1, 2, 4]);
        #[rustfmt::skip]
        let cases: &[(&str, &[ImageSpan], usize, &str)] = &[
            ("merge size 0", &[valid], 0, "merge_size must be positive"),
            ("same span twice", &[valid, valid], 2, "must start at token 3 or later and end before token 6"),
            ("wrong order", &[span(4, 5, [1, 2, 4]), valid], 2, "item 1 at tokens 1 to 2 is out of order/bounds"),
            ("exceeds the prompt", &[span(5, 6, [1, 2, 4])], 2, "item 0 at tokens 5 to 6 is out of order/bounds"),
            ("end is the largest integer", &[span(0, usize::MAX, [1, 2, 4])], 2, "out of order/bounds"),
            ("ends before it starts", &[span(2, 1, [1, 0, 0])], 2, "item 0 at tokens 2 to 1 is out of order/bounds"),
            ("video", &[span(1, 4, [2, 2, 4])], 2, "item 0 has grid [2, 2, 4], which is not a still image"),
            ("no frames", &[span(1, 2, [0, 2, 4])], 2, "which is not a still image"),
            ("odd height", &[span(1, 2, [1, 3, 4])], 2, "height and width are multiples of merge_size 2"),
            ("odd width", &[span(1, 2, [1, 2, 5])], 2, "height and width are multiples of merge_size 2"),
            ("one token too many", &[span(1, 3, [1, 2, 4])], 2,
                "span does not match grid [1, 2, 4]: 3 token(s), not 2"),
            ("huge grid", &[span(1, 2, [1, u32::MAX, u32::MAX])], 1, "token span does not match grid"),
        ];
        for (name, items, merge_size, expected) in cases {
            let error = mrope_image_only(6, items, *merge_size)
                .expect_err(name)
                .to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
