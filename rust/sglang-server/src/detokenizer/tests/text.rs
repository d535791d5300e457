//! Compares incremental decoding with the text that the tokenizer decodes from all tokens at once.

use std::sync::Arc;

use proptest::{prelude::*, sample::Index};

use super::super::{DecodeOptions, Decoder, StopFinder, Stops, decode_one};
use crate::tokenizer::{TextTokenizer, samples};

/// The text of each chunk of tokens, and the rest at the end.
fn pieces(
    tokenizer: &Arc<dyn TextTokenizer>,
    options: DecodeOptions,
    chunks: &[&[i32]],
) -> Vec<String> {
    let mut decoder = Decoder::new(Arc::clone(tokenizer), options);
    let mut pieces: Vec<String> = chunks.iter().map(|chunk| decoder.push(chunk)).collect();
    pieces.push(decoder.finish().unwrap());
    pieces
}

fn skipping(skip_special_tokens: bool) -> DecodeOptions {
    DecodeOptions {
        skip_special_tokens,
        ..DecodeOptions::default()
    }
}

/// `items`, cut before each index whose bit in `cuts` is set.
pub(super) fn cut<T>(items: &[T], cuts: u64) -> Vec<&[T]> {
    let mut chunks = Vec::new();
    let mut start = 0;
    for end in 1..items.len() {
        if cuts >> (end % 64) & 1 == 1 {
            chunks.push(&items[start..end]);
            start = end;
        }
    }
    chunks.push(&items[start..]);
    chunks
}

#[test]
fn every_split_of_every_text_gives_the_whole_text() {
    for (name, tokenizer) in samples::all() {
        for text in samples::TEXTS {
            let ids = tokenizer.encode(text).unwrap();
            for window in ids.windows(ids.len().clamp(1, 9)) {
                for skip in [false, true] {
                    let whole = tokenizer.decode(window, skip).unwrap();
                    for cuts in (0..1 << window.len()).step_by(2) {
                        let pieces = pieces(&tokenizer, skipping(skip), &cut(window, cuts));
                        assert_eq!(whole, pieces.concat(), "{name}, {text:?}, {window:?}");
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Random tokens, so characters are incomplete or invalid, and ids outside the vocabulary.
    #[test]
    fn random_tokens_give_the_whole_text(
        kind in any::<Index>(),
        ids in prop::collection::vec(any::<Index>(), 0..40),
        cuts in any::<u64>(),
        skip in any::<bool>(),
    ) {
        let samples = SAMPLES.with(Arc::clone);
        let (name, tokenizer) = kind.get(samples.as_slice());
        let id = |index: &Index| index.index(tokenizer.vocab_size() + 2) as i32 - 1;
        let ids: Vec<i32> = ids.iter().map(id).collect();
        let whole = tokenizer.decode(&ids, skip).unwrap();
        let pieces = pieces(tokenizer, skipping(skip), &cut(&ids, cuts));
        prop_assert_eq!(whole, pieces.concat(), "{}", name);
    }

    /// The decoder returns a character neither earlier nor later.
    #[test]
    fn a_character_is_returned_with_its_last_byte(text in "[a한é✅👨\u{2028}\u{200d}]{0,12}", cuts in any::<u64>()) {
        let tokenizer = Arc::clone(&SAMPLES.with(Arc::clone)[0].1);
        let ids = tokenizer.encode(&text).unwrap();
        let mut decoder = Decoder::new(tokenizer, DecodeOptions::default());
        let (mut given, mut taken) = (String::new(), 0);
        for chunk in cut(&ids, cuts) {
            given += &decoder.push(chunk);
            taken += chunk.len();
            let certain = (0..=taken).rev().find(|&end| text.is_char_boundary(end)).unwrap();
            prop_assert_eq!(&text[..certain], &given);
        }
    }

    #[test]
    fn text_ends_at_the_first_stop_string_for_every_split(
        text in "[ab한é]{0,16}",
        stops in prop::collection::vec("[ab한é]{0,4}", 0..4),
        keep in any::<bool>(),
        cuts in any::<u64>(),
    ) {
        let characters: Vec<char> = text.chars().collect();
        let mut finder = StopFinder::new(Stops::new(&stops), keep);
        let (mut given, mut taken) = (String::new(), String::new());
        for chunk in cut(&characters, cuts) {
            let more: String = chunk.iter().collect();
            taken += &more;
            given += &finder.push(more);
            let (whole, found) = first_stop(&taken, &stops, keep);
            prop_assert_eq!(found, finder.found());
            let held = if found.is_some() { 0 } else { ambiguous(&taken, &stops) };
            prop_assert_eq!(&whole[..whole.len() - held], &given);
        }
        given += &finder.finish(String::new(), None);
        prop_assert_eq!(first_stop(&text, &stops, keep).0, given);
    }
}

thread_local! {
    static SAMPLES: Arc<Vec<(&'static str, Arc<dyn TextTokenizer>)>> = Arc::new(samples::all());
}

/// The reference: for every end of the text, in order, the longest stop string that ends there.
pub(super) fn first_stop<'a>(
    text: &str,
    stops: &'a [String],
    keep: bool,
) -> (String, Option<&'a str>) {
    for end in 1..=text.len() {
        let ending = stops
            .iter()
            .filter(|stop| !stop.is_empty() && text.as_bytes()[..end].ends_with(stop.as_bytes()));
        if let Some(stop) = ending.max_by_key(|stop| stop.len()) {
            let end = if keep { end } else { end - stop.len() };
            return (text[..end].to_owned(), Some(stop));
        }
    }
    (text.to_owned(), None)
}

/// Length of the longest suffix of `text` that is a prefix of a stop string.
fn ambiguous(text: &str, stops: &[String]) -> usize {
    let begins = |end: &str| {
        stops
            .iter()
            .any(|stop| stop.len() > end.len() && stop.starts_with(end))
    };
    let ends = text.char_indices().map(|(at, _)| &text[at..]);
    ends.filter(|end| begins(end))
        .map(str::len)
        .max()
        .unwrap_or(0)
}

/// Name, stop strings, pieces of text, expected result for each piece and at the end.
type Case = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

#[test]
fn text_that_may_begin_a_stop_string_is_held_back() {
    #[rustfmt::skip]
    let cases: &[Case] = &[
        ("split over pieces",             &["ta ga"],      &["alpha be", "ta", " ", "gamma"], &["alpha be", "", "", "", ""]),
        ("prefix that does not continue", &["ta ga"],      &["beta", " be"],                  &["be", "ta be", ""]),
        ("prefix at the end of the text", &["\nUser:"],    &["hi\nUs"],                       &["hi", "\nUs"]),
        ("longer stop begins first",      &["aab", "ab"],  &["a", "a", "b"],                  &["", "", "", ""]),
        ("shorter stop is complete",      &["aab", "ab"],  &["ca", "b"],                      &["c", "", ""]),
        ("stop inside another stop",      &["abcd", "bc"], &["abcd"],                         &["a", ""]),
        ("stop is the whole text",        &["all of it"],  &["all ", "of it"],                &["", "", ""]),
        ("same stop twice",               &["x", "x"],     &["ax"],                           &["a", ""]),
        ("overlapping attempts",          &["aab"],        &["aa", "a", "b", "c"],            &["", "a", "", "", ""]),
        ("empty",                         &["", "b"],      &["ab"],                           &["a", ""]),
        ("no stops",                      &[],             &["ab"],                           &["ab", ""]),
        ("multi-byte character",          &["한"],         &["é한국"],                        &["é", ""]),
    ];
    for (name, stops, text, expected) in cases {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let mut finder = StopFinder::new(Stops::new(&stops), false);
        let mut given: Vec<String> = text
            .iter()
            .map(|piece| finder.push((*piece).to_owned()))
            .collect();
        given.push(finder.finish(String::new(), None));
        assert_eq!(*expected, given, "{name}");
    }
}

/// The stop string may be missing from the request, such as a stop string of the model.
#[test]
fn the_stop_string_that_the_scheduler_found_is_trimmed() {
    #[rustfmt::skip]
    let cases = [
        // name, stop of the request, text before, last piece, stop that the scheduler found,
        // expected rest when trimmed, expected rest when kept
        ("same stop",            "end", "a e",  "nd b", "end",  "",      "end"),
        ("another stop",         "x",   "a",    " b##c", "##",  " b",    " b##"),
        ("not in the rest",      "x",   "a",    " b",    "##",  " b",    " b"),
        ("own stop comes first", "b",   "a",    " b##",  "##",  " ",     " b"),
        ("held back",            "##!", "a#",   "#",     "##",  "",      "##"),
        ("empty",                "x",   "a",    "b",     "",    "b",     "b"),
    ];
    for (name, own, before, last, matched, trimmed, kept) in cases {
        for (keep, expected) in [(false, trimmed), (true, kept)] {
            let mut finder = StopFinder::new(Stops::new(&[own.to_owned()]), keep);
            finder.push(before.to_owned());
            assert_eq!(
                expected,
                finder.finish(last.to_owned(), Some(matched)),
                "{name}, kept: {keep}"
            );
        }
    }
}

#[test]
fn invalid_bytes_become_replacement_characters_at_once() {
    let byte_level = samples::all().remove(0).1;
    let options = DecodeOptions::default();
    let given = pieces(
        &byte_level,
        options,
        &[&[0xE2], &[0x9C], &[0xFF], &[0x80], &[97], &[0xE2, 0x9C]],
    );
    assert_eq!(
        ["", "", "\u{FFFD}\u{FFFD}", "\u{FFFD}", "a", "", "\u{FFFD}"],
        given[..]
    );
    let fallback = samples::byte_fallback();
    let byte = |byte: i32| byte + 3;
    let word = fallback.encode("한").unwrap()[1..].to_vec();
    let run = [byte(0xC3), byte(0xA9), byte(0xFF), byte(0x41)];
    let given = pieces(
        &fallback,
        options,
        &[&run[..2], &run[2..3], &run[3..], &word, &run[..2], &word],
    );
    assert_eq!(
        [
            "",
            "\u{FFFD}\u{FFFD}\u{FFFD}",
            "\u{FFFD}",
            "한",
            "",
            "é한",
            ""
        ],
        given[..]
    );
}

#[test]
fn spaces_between_special_tokens() {
    let tokenizer = samples::word_piece();
    let id = |word| tokenizer.encode(word).unwrap()[0];
    let (cls, sep, don) = (id("[CLS]"), id("[SEP]"), id("don"));
    let ids = [cls, sep, don, don, sep, sep, cls];
    #[rustfmt::skip]
    let cases = [
        (false, true,  "[CLS] [SEP] don don [SEP] [SEP] [CLS]"),
        (false, false, "[CLS][SEP] don don [SEP][SEP][CLS]"),
        (true,  true,  "don don"),
        (true,  false, "don don"),
    ];
    for (skip_special_tokens, spaces_between_special_tokens, expected) in cases {
        let options = DecodeOptions {
            skip_special_tokens,
            spaces_between_special_tokens,
        };
        for cuts in [0, u64::MAX] {
            assert_eq!(
                expected,
                pieces(&tokenizer, options, &cut(&ids, cuts)).concat()
            );
        }
    }
}

/// Used for the tokens of log-probabilities. Special tokens have text too.
#[test]
fn decode_one_gives_the_text_of_a_single_token() {
    for (name, tokenizer) in samples::all() {
        for id in (0..tokenizer.vocab_size() as i32)
            .filter(|&id| tokenizer.vocabulary().piece(id).is_some())
        {
            let expected = tokenizer.decode(&[id], false).unwrap();
            assert_eq!(
                expected,
                decode_one(&tokenizer, id).unwrap(),
                "{name}, {id}"
            );
        }
        assert_eq!("", decode_one(&tokenizer, -1).unwrap(), "{name}");
    }
}
