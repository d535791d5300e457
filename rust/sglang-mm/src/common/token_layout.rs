//! How a prompt with one placeholder per item becomes the prompt that the model reads.
//!
//! Invariant: every token of the source is used exactly once and in order, every item is
//! placed exactly once, and no item takes zero tokens.

use std::ops::Range;

use crate::pipeline::{Segment, TokenLayout, TokenPattern};

/// Most tokens that a prompt may expand to: 64 of the largest pictures that are decoded,
/// each at its own size. More is a mistake in a layout, and would only eat memory.
pub const MAX_EXPANDED_TOKENS: usize = 1 << 24;

/// A prompt after expansion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpandedPrompt {
    /// The tokens.
    pub input_ids: Vec<i32>,
    /// First and last token of each item, by index of the item.
    pub offsets: Vec<(u32, u32)>,
}

/// The layout does not describe an expansion of this prompt with these items.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Placeholders are typed once per item, no more and no less.
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
    /// The range names tokens that are not there, or ends before it starts.
    #[error("layout: text range {range:?} is out of bounds of {len} source token(s)")]
    TextOutOfBounds {
        /// The range.
        range: Range<usize>,
        /// Tokens in the source.
        len: usize,
    },
    /// Source tokens would be skipped or repeated.
    #[error("layout: text range {range:?} does not resume at source index {consumed}")]
    TextOutOfOrder {
        /// The range.
        range: Range<usize>,
        /// The first token that is not used yet.
        consumed: usize,
    },
    /// The source has ended.
    #[error("layout: media item {item} has no source placeholder at index {consumed}")]
    NoPlaceholder {
        /// The item.
        item: usize,
        /// Where its placeholder would stand.
        consumed: usize,
    },
    /// An item that the model would not see.
    #[error("layout: media item {item} expands to zero tokens")]
    ZeroTokens {
        /// The item.
        item: usize,
    },
    /// No such item.
    #[error("layout: media item {item} is out of range of {items} item(s)")]
    ItemOutOfRange {
        /// The item.
        item: usize,
        /// Items of the request.
        items: usize,
    },
    /// One item, two places.
    #[error("layout: media item {item} is placed twice")]
    PlacedTwice {
        /// The item.
        item: usize,
    },
    /// Source tokens were left over.
    #[error("layout: covers {covered} of {len} source token(s)")]
    NotCovered {
        /// Tokens used.
        covered: usize,
        /// Tokens in the source.
        len: usize,
    },
    /// An item without a place.
    #[error("layout: media item {item} not placed")]
    NotPlaced {
        /// The item.
        item: usize,
    },
    /// The expanded prompt would not be one that any model reads.
    #[error("layout: the prompt expands to more than {MAX_EXPANDED_TOKENS} tokens")]
    TooLong,
}

/// The layout in which the `i`-th `placeholder` becomes `counts[i]` copies of itself.
///
/// # Errors
///
/// When there are more or fewer placeholders than counts.
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
        // The stretch behind the last placeholder is followed by none.
        if let Some(&n) = counts.get(item) {
            let pattern = TokenPattern::Repeat { id: placeholder, n };
            segments.push(Segment::Media { item, pattern });
        }
    }
    Ok(TokenLayout { segments })
}

/// The prompt that `layout` makes of `src`, for a request of `n_items` items.
///
/// Each item takes the place of one source token, whatever that token is. Items may come
/// in any order; the offsets are in order of the items.
///
/// # Errors
///
/// When the layout breaks the invariant of this module, or the result is too long.
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

/// The tokens of `range`, which must begin where the last stretch ended.
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

/// Notes that `item` takes the tokens from `start` on.
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
    // Before anything is appended: the count may be any number at all.
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
