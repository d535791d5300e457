//! Expands a prompt with one placeholder per media item to the prompt that the model reads.
//!
//! Invariant: every source token is used exactly once and in order, every item is placed exactly
//! once, and no item takes zero tokens.

use std::ops::Range;

use crate::pipeline::{Segment, TokenLayout, TokenPattern};

/// The largest number of tokens that a prompt may expand to: 64 images of the largest size that is
/// decoded, unscaled. A longer expansion is a mistake in the layout and would only waste memory.
pub const MAX_EXPANDED_TOKENS: usize = 1 << 24;

/// An expanded prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpandedPrompt {
    /// The tokens.
    pub input_ids: Vec<i32>,
    /// The positions of the first and last token of each item, by index of the item.
    pub offsets: Vec<(u32, u32)>,
}

/// The layout does not describe an expansion of this prompt with these items.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The prompt does not have exactly one placeholder per item.
    #[error(
        "prompt has {found} media placeholder(s) but {items} media item(s): \
         it must hold exactly one placeholder token per item"
    )]
    PlaceholderCount {
        /// Placeholders in the prompt.
        found: usize,
        /// Items of the request.
        items: usize,
    },
    /// The range goes beyond the source, or ends before it starts.
    #[error("layout: text range {range:?} is out of bounds of {len} source token(s)")]
    TextOutOfBounds {
        /// The range.
        range: Range<usize>,
        /// Number of source tokens.
        len: usize,
    },
    /// Source tokens would be skipped or repeated.
    #[error("layout: text range {range:?} does not resume at source index {consumed}")]
    TextOutOfOrder {
        /// The range.
        range: Range<usize>,
        /// Index of the first unused source token.
        consumed: usize,
    },
    /// No source token is left for the placeholder of the item.
    #[error("layout: media item {item} has no source placeholder at index {consumed}")]
    NoPlaceholder {
        /// The item.
        item: usize,
        /// Index where the placeholder was expected.
        consumed: usize,
    },
    /// The item has no tokens, so the model would not see it.
    #[error("layout: media item {item} expands to zero tokens")]
    ZeroTokens {
        /// The item.
        item: usize,
    },
    /// The request has no such item.
    #[error("layout: media item {item} is out of range of {items} item(s)")]
    ItemOutOfRange {
        /// The item.
        item: usize,
        /// Items of the request.
        items: usize,
    },
    /// The layout places one item twice.
    #[error("layout: media item {item} is placed twice")]
    PlacedTwice {
        /// The item.
        item: usize,
    },
    /// The layout ends before the source.
    #[error("layout: covers {covered} of {len} source token(s)")]
    NotCovered {
        /// Source tokens used.
        covered: usize,
        /// Number of source tokens.
        len: usize,
    },
    /// The layout does not place an item.
    #[error("layout: media item {item} not placed")]
    NotPlaced {
        /// The item.
        item: usize,
    },
    /// The expanded prompt is longer than [`MAX_EXPANDED_TOKENS`].
    #[error("layout: the prompt expands to more than {MAX_EXPANDED_TOKENS} tokens")]
    TooLong,
}

/// The layout that replaces the `i`-th `placeholder` by `counts[i]` copies of it.
///
/// # Errors
///
/// If the number of placeholders is not the number of counts.
pub fn layout_by_placeholder(
    ids: &[i32],
    placeholder: i32,
    counts: &[usize],
) -> Result<TokenLayout, LayoutError> {
    let found = ids.iter().filter(|&&id| id == placeholder).count();
    if found != counts.len() {
        return Err(LayoutError::PlaceholderCount {
            found,
            items: counts.len(),
        });
    }
    let mut segments = Vec::with_capacity(2 * counts.len() + 1);
    let mut at = 0;
    for (item, text) in ids.split(|&id| id == placeholder).enumerate() {
        if !text.is_empty() {
            segments.push(Segment::Text(at..at + text.len()));
        }
        at += text.len() + 1;
        // No placeholder follows the last text.
        if let Some(&n) = counts.get(item) {
            let pattern = TokenPattern::Repeat { id: placeholder, n };
            segments.push(Segment::Media { item, pattern });
        }
    }
    Ok(TokenLayout { segments })
}

/// Expands `src` by `layout`, for a request of `n_items` items.
///
/// Each item replaces one source token, which may be any token. Items may come in any order. The
/// offsets are in the order of the items.
///
/// # Errors
///
/// If the layout violates the invariant of this module, or the result is too long.
pub fn apply_layout(
    src: &[i32],
    layout: &TokenLayout,
    n_items: usize,
) -> Result<ExpandedPrompt, LayoutError> {
    let mut input_ids = Vec::with_capacity(src.len());
    let mut placed: Vec<Option<(u32, u32)>> = vec![None; n_items];
    let mut consumed = 0;
    for segment in &layout.segments {
        match segment {
            Segment::Text(range) => {
                input_ids.extend_from_slice(text(src, range, consumed)?);
                consumed = range.end;
            }
            Segment::Media { item, pattern } => {
                if consumed >= src.len() {
                    let item = *item;
                    return Err(LayoutError::NoPlaceholder { item, consumed });
                }
                place(&mut placed, *item, pattern, input_ids.len())?;
                append(&mut input_ids, pattern);
                consumed += 1;
            }
        }
    }
    if consumed != src.len() {
        return Err(LayoutError::NotCovered {
            covered: consumed,
            len: src.len(),
        });
    }
    if input_ids.len() > MAX_EXPANDED_TOKENS {
        return Err(LayoutError::TooLong);
    }
    let offsets = placed
        .into_iter()
        .enumerate()
        .map(|(item, offset)| offset.ok_or(LayoutError::NotPlaced { item }))
        .collect::<Result<_, _>>()?;
    Ok(ExpandedPrompt { input_ids, offsets })
}

/// The source tokens of `range`, which must start at `consumed`.
fn text<'a>(
    src: &'a [i32],
    range: &Range<usize>,
    consumed: usize,
) -> Result<&'a [i32], LayoutError> {
    let tokens = src
        .get(range.clone())
        .ok_or_else(|| LayoutError::TextOutOfBounds {
            range: range.clone(),
            len: src.len(),
        })?;
    if range.start != consumed {
        let range = range.clone();
        return Err(LayoutError::TextOutOfOrder { range, consumed });
    }
    Ok(tokens)
}

/// Records that the tokens of `item` start at `start`.
fn place(
    placed: &mut [Option<(u32, u32)>],
    item: usize,
    pattern: &TokenPattern,
    start: usize,
) -> Result<(), LayoutError> {
    let items = placed.len();
    let Some(last) = pattern.len().checked_sub(1) else {
        return Err(LayoutError::ZeroTokens { item });
    };
    let place = placed
        .get_mut(item)
        .ok_or(LayoutError::ItemOutOfRange { item, items })?;
    if place.is_some() {
        return Err(LayoutError::PlacedTwice { item });
    }
    // Checked before anything is appended, because the count may be any number.
    let end = start
        .checked_add(last)
        .filter(|&end| end < MAX_EXPANDED_TOKENS)
        .ok_or(LayoutError::TooLong)?;
    *place = Some((start as u32, end as u32));
    Ok(())
}

fn append(input_ids: &mut Vec<i32>, pattern: &TokenPattern) {
    match pattern {
        TokenPattern::Repeat { id, n } => input_ids.resize(input_ids.len() + n, *id),
        TokenPattern::Explicit(ids) => input_ids.extend_from_slice(ids),
    }
}

#[cfg(test)]
mod tests;
