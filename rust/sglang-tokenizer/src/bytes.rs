//! The built-in tokenizer, which needs no file: one token per byte, and the special tokens of
//! `ChatML` and of images.
//!
//! | id      | token               |
//! |---------|---------------------|
//! | 0 – 255 | the byte of that value |
//! | 256     | `<\|im_start\|>`      |
//! | 257     | `<\|im_end\|>`        |
//! | 258     | `<\|vision_start\|>`  |
//! | 259     | `<\|image_pad\|>`     |
//! | 260     | `<\|vision_end\|>`    |
//!
//! Invariants: every text can be encoded, and decoding gives the same text back. Special tokens
//! are never added automatically.

use super::{AutoSpecials, Joining, Piece, TextTokenizer, TokenText, TokenizeError, Vocabulary};

/// The special tokens, with ids from 256 on.
const SPECIAL: [&str; 5] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|image_pad|>",
    "<|vision_end|>",
];
const BYTES: i32 = 256;

/// The built-in tokenizer.
#[derive(Clone, Debug)]
pub struct ByteTokenizer {
    vocabulary: Vocabulary,
}

impl Default for ByteTokenizer {
    fn default() -> Self {
        let mut vocabulary = Vocabulary::new(Joining::Bytes);
        let mut push = |text: &[u8], special| {
            vocabulary.push(Some(Piece {
                first: TokenText::Text(text),
                later: TokenText::Text(text),
                special,
            }));
        };
        for byte in 0..=u8::MAX {
            push(&[byte], false);
        }
        for special in SPECIAL {
            push(special.as_bytes(), true);
        }
        Self { vocabulary }
    }
}

impl TextTokenizer for ByteTokenizer {
    fn encode_with(&self, text: &str, _: AutoSpecials) -> Result<Vec<i32>, TokenizeError> {
        let mut ids = Vec::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let mut specials = (BYTES..).zip(SPECIAL);
            let special =
                specials.find_map(|(id, special)| Some((id, rest.strip_prefix(special)?)));
            if let Some((id, after)) = special {
                ids.push(id);
                rest = after;
            } else {
                // Plain bytes up to the next `<`, where a special token may begin.
                let mut bytes = rest.bytes().skip(1);
                let end = bytes
                    .position(|byte| byte == b'<')
                    .map_or(rest.len(), |at| at + 1);
                ids.extend(rest[..end].bytes().map(i32::from));
                rest = &rest[end..];
            }
        }
        Ok(ids)
    }

    fn decode(&self, ids: &[i32], skip_special_tokens: bool) -> Result<String, TokenizeError> {
        let mut bytes = Vec::with_capacity(ids.len());
        for &id in ids {
            if let Ok(byte) = u8::try_from(id) {
                bytes.push(byte);
            } else if let Some(special) = id
                .checked_sub(BYTES)
                .and_then(|at| SPECIAL.get(usize::try_from(at).ok()?))
                && !skip_special_tokens
            {
                bytes.extend_from_slice(special.as_bytes());
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ByteTokenizer, TextTokenizer};

    #[test]
    fn special_tokens_are_recognised_and_other_text_is_bytes() {
        #[rustfmt::skip]
        let cases: &[(&str, &[i32])] = &[
            ("",                       &[]),
            ("a<",                     &[97, 60]),
            ("é",                      &[0xC3, 0xA9]),
            ("\0",                     &[0]),
            ("<|im_start|>",           &[256]),
            ("<|im_end|>",             &[257]),
            ("<|vision_start|>",       &[258]),
            ("<|image_pad|>",          &[259]),
            ("<|vision_end|>",         &[260]),
            ("<|im_end|><|im_end|>",   &[257, 257]),
            ("<<|im_end|>é",           &[60, 257, 0xC3, 0xA9]),
            ("<|im_end",               &[60, 124, 105, 109, 95, 101, 110, 100]),
        ];
        let tokenizer = ByteTokenizer::default();
        for (text, ids) in cases {
            assert_eq!(*ids, tokenizer.encode(text).unwrap(), "{text:?}");
            assert_eq!(*text, tokenizer.decode(ids, false).unwrap(), "{text:?}");
        }
        assert_eq!(
            "ab",
            tokenizer
                .decode(&[97, 257, -1, 261, i32::MIN, i32::MAX, 98], true)
                .unwrap()
        );
        assert_eq!(261, tokenizer.vocab_size());
        assert!(tokenizer.auto_specials().is_empty());
    }

    proptest! {
        #[test]
        fn decoding_restores_any_text(text in "(<|im_end\\|>|<\\||[a<|é한✅\u{2028}]|\\PC){0,40}") {
            let tokenizer = ByteTokenizer::default();
            let ids = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(text, tokenizer.decode(&ids, false).unwrap());
        }
    }
}
