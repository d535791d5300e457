//! Valid layouts, invalid layouts, and placeholders at random positions.

use proptest::prelude::*;

use super::{
    ExpandedPrompt, LayoutError, MAX_EXPANDED_TOKENS, apply_layout, layout_by_placeholder,
};
use crate::pipeline::{Segment, TokenLayout, TokenPattern};

const PAD: i32 = 99;

fn repeat(item: usize, n: usize) -> Segment {
    let pattern = TokenPattern::Repeat { id: PAD, n };
    Segment::Media { item, pattern }
}

fn explicit(item: usize, ids: &[i32]) -> Segment {
    let pattern = TokenPattern::Explicit(ids.to_vec());
    Segment::Media { item, pattern }
}

fn check(src: &[i32], segments: &[Segment], items: usize) -> Result<ExpandedPrompt, LayoutError> {
    let segments = segments.to_vec();
    apply_layout(src, &TokenLayout { segments }, items)
}

#[test]
fn valid_layouts_expand() {
    use Segment::Text;
    type Row<'a> = (
        &'a str,
        &'a [i32],
        Vec<Segment>,
        &'a [i32],
        &'a [(u32, u32)],
    );
    #[rustfmt::skip]
    let cases: &[Row] = &[
        ("text only",             &[1, 2], vec![Text(0..2)], &[1, 2], &[]),
        ("text in two segments",  &[1, 2], vec![Text(0..1), Text(1..1), Text(1..2)], &[1, 2], &[]),
        ("empty",                 &[], vec![], &[], &[]),
        ("one item",              &[7, 0, 8], vec![Text(0..1), repeat(0, 3), Text(2..3)], &[7, PAD, PAD, PAD, 8],
            &[(1, 3)]),
        ("one token",             &[0], vec![repeat(0, 1)], &[PAD], &[(0, 0)]),
        ("explicit tokens",       &[0, 8], vec![explicit(0, &[5, 6]), Text(1..2)], &[5, 6, 8], &[(0, 1)]),
        ("items out of order",    &[0, 0], vec![repeat(1, 2), explicit(0, &[4])], &[PAD, PAD, 4], &[(2, 2), (0, 1)]),
    ];
    for (name, src, segments, input_ids, offsets) in cases {
        let expected = ExpandedPrompt {
            input_ids: input_ids.to_vec(),
            offsets: offsets.to_vec(),
        };
        assert_eq!(Ok(expected), check(src, segments, offsets.len()), "{name}");
    }
}

#[test]
fn invalid_layouts_are_refused() {
    use Segment::Text;
    type Row<'a> = (&'a str, &'a [i32], Vec<Segment>, usize, &'a str);
    #[expect(
        clippy::reversed_empty_ranges,
        reason = "the reversed range is the error under test"
    )]
    let reversed = Text(2..1);
    #[rustfmt::skip]
    let cases: &[Row] = &[
        ("range past the end", &[1], vec![Text(0..2)], 0, "text range 0..2 is out of bounds of 1 source token(s)"),
        ("reversed range",     &[1, 2], vec![reversed], 0, "text range 2..1 is out of bounds of 2 source token(s)"),
        ("skipped token",      &[1, 2], vec![Text(1..2)], 0, "text range 1..2 does not resume at source index 0"),
        ("repeated token",     &[1, 2], vec![Text(0..2), Text(1..2)], 0,
            "text range 1..2 does not resume at source index 2"),
        ("empty, wrong index", &[1, 2], vec![Text(1..1), Text(0..2)], 0,
            "text range 1..1 does not resume at source index 0"),
        ("item after the end", &[1], vec![Text(0..1), repeat(0, 1)], 1,
            "media item 0 has no source placeholder at index 1"),
        ("zero copies",        &[1], vec![repeat(0, 0)], 1, "media item 0 expands to zero tokens"),
        ("no tokens",          &[1], vec![explicit(0, &[])], 1, "media item 0 expands to zero tokens"),
        ("no such item",       &[1], vec![repeat(1, 1)], 1, "media item 1 is out of range of 1 item(s)"),
        ("placed twice",       &[1, 1], vec![repeat(0, 1), repeat(0, 1)], 1, "media item 0 is placed twice"),
        ("tail left over",     &[1, 2], vec![Text(0..1)], 0, "covers 1 of 2 source token(s)"),
        ("item left over",     &[1], vec![Text(0..1)], 1, "media item 0 not placed"),
        ("too many copies",    &[1], vec![repeat(0, MAX_EXPANDED_TOKENS + 1)], 1,
            "expands to more than 16777216 tokens"),
        ("overflow",           &[1, 1], vec![Text(0..1), repeat(0, usize::MAX)], 1,
            "expands to more than 16777216 tokens"),
    ];
    for (name, src, segments, items, words) in cases {
        let error = check(src, segments, *items).expect_err(name).to_string();
        assert!(error.starts_with("layout: "), "{name}: {error}");
        assert!(error.contains(words), "{name}: {error}");
    }
}

#[test]
fn text_counts_towards_the_limit() {
    let src = vec![1; MAX_EXPANDED_TOKENS + 1];
    let whole = |len| check(&src[..len], &[Segment::Text(0..len)], 0).map(|_| ());
    assert_eq!(Ok(()), whole(MAX_EXPANDED_TOKENS));
    assert_eq!(Err(LayoutError::TooLong), whole(MAX_EXPANDED_TOKENS + 1));
}

#[test]
fn placeholders_must_match_items() {
    #[rustfmt::skip]
    let cases: &[(&str, &[i32], &[usize], usize)] = &[
        ("none for one item",  &[1, 2],        &[4],    0),
        ("two for one item",   &[PAD, 1, PAD], &[4],    2),
        ("one for two items",  &[1, PAD],      &[4, 4], 1),
        ("expanded already",   &[PAD; 4],      &[4],    4),
        ("placeholders, no item",&[PAD; 500],    &[],     500),
    ];
    for (name, ids, counts, found) in cases {
        let error = layout_by_placeholder(ids, PAD, counts).expect_err(name);
        let items = counts.len();
        let words = format!("prompt has {found} media placeholder(s) but {items} media item(s)");
        assert!(error.to_string().starts_with(&words), "{name}: {error}");
    }
}

proptest! {
    /// Each placeholder is replaced by its copies, and the other tokens keep their order.
    #[test]
    fn placeholders_expand_in_place(
        text in prop::collection::vec(0..5_i32, 0..30),
        items in prop::collection::vec((0..30_usize, 1..9_usize), 0..6),
    ) {
        let mut src = text;
        for (at, _) in &items {
            src.insert(at % (src.len() + 1), PAD);
        }
        let counts: Vec<usize> = items.iter().map(|&(_, n)| n).collect();
        let mut left = counts.iter();
        let (mut input_ids, mut offsets) = (Vec::new(), Vec::new());
        for &id in &src {
            let n = if id == PAD { *left.next().unwrap() } else { 1 };
            if id == PAD {
                let start = input_ids.len() as u32;
                offsets.push((start, start + n as u32 - 1));
            }
            input_ids.extend(std::iter::repeat_n(id, n));
        }

        let layout = layout_by_placeholder(&src, PAD, &counts).unwrap();
        let expanded = apply_layout(&src, &layout, counts.len());

        prop_assert_eq!(expanded, Ok(ExpandedPrompt { input_ids, offsets }));
    }
}
