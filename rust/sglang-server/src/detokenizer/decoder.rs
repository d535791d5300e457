//! Incremental decoding of tokens into text.
//!
//! Each token yields the text that no later token can change. The rest is held back: an incomplete
//! UTF-8 character, or a run of byte tokens, which is text only if the whole run is valid UTF-8.
//!
//! Invariants: the concatenated results of [`Decoder::push`] and [`Decoder::finish`] equal the text
//! that the tokenizer decodes from all tokens at once, however the tokens are split into pushes.
//! The cost of a token does not depend on how many tokens came before.

use std::{mem, str, sync::Arc};

use crate::tokenizer::{Joining, Piece, TextTokenizer, TokenText, TokenizeError};

const REPLACEMENT: &str = "\u{FFFD}";

/// How tokens become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Whether special tokens are left out of the text.
    pub skip_special_tokens: bool,
    /// Whether to separate two adjacent special tokens as the tokenizer does (`WordPiece` puts a
    /// space between them). If false, nothing is put between them.
    pub spaces_between_special_tokens: bool,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            skip_special_tokens: true,
            spaces_between_special_tokens: true,
        }
    }
}

/// Decodes one sequence of tokens.
pub struct Decoder {
    tokenizer: Arc<dyn TextTokenizer>,
    options: DecodeOptions,
    /// The kind of the last token.
    before: Before,
    /// How many characters may still be stripped from the start of the text.
    to_strip: usize,
    held: Held,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Text,
    Special,
}

/// Input whose text is not certain yet.
enum Held {
    /// The first bytes of an incomplete character: at most three.
    Tail(Vec<u8>),
    /// A run of byte tokens.
    Run(Run),
    /// All tokens, for a tokenizer that can only decode them together.
    Ids(Vec<i32>),
}

impl Decoder {
    /// A decoder without tokens.
    #[must_use]
    pub fn new(tokenizer: Arc<dyn TextTokenizer>, options: DecodeOptions) -> Self {
        let (held, to_strip) = match tokenizer.vocabulary().joining() {
            Joining::Bytes => (Held::Tail(Vec::new()), 0),
            Joining::Text { strip, .. } => (Held::Run(Run::default()), strip),
            Joining::AllAtOnce => (Held::Ids(Vec::new()), 0),
        };
        Self {
            tokenizer,
            options,
            before: Before::Nothing,
            to_strip,
            held,
        }
    }

    /// Adds tokens, and returns the text that is certain now. Ids outside the vocabulary have
    /// no text.
    pub fn push(&mut self, ids: &[i32]) -> String {
        let mut text = String::new();
        if let Held::Ids(held) = &mut self.held {
            held.extend_from_slice(ids);
            return text;
        }
        let tokenizer = Arc::clone(&self.tokenizer);
        for &id in ids {
            let Some(piece) = tokenizer.vocabulary().piece(id) else {
                continue;
            };
            if piece.special && self.options.skip_special_tokens {
                continue;
            }
            let token_text = self.token_text(piece);
            self.take(token_text, &mut text);
        }
        text
    }

    /// Returns the text that was held back.
    ///
    /// # Errors
    ///
    /// If the tokenizer decodes all tokens at once and fails.
    pub fn finish(mut self) -> Result<String, TokenizeError> {
        let mut text = String::new();
        match &mut self.held {
            Held::Tail(tail) if tail.is_empty() => (),
            Held::Tail(_) => text.push_str(REPLACEMENT),
            Held::Run(run) => {
                let end = mem::take(run).end();
                self.append(&end, &mut text);
            }
            Held::Ids(ids) => {
                text = self
                    .tokenizer
                    .decode(ids, self.options.skip_special_tokens)?;
            }
        }
        Ok(text)
    }

    fn token_text<'a>(&mut self, piece: Piece<'a>) -> TokenText<'a> {
        let joined = piece.special
            && self.before == Before::Special
            && !self.options.spaces_between_special_tokens;
        let token_text = if self.before == Before::Nothing || joined {
            piece.first
        } else {
            piece.later
        };
        self.before = if piece.special {
            Before::Special
        } else {
            Before::Text
        };
        token_text
    }

    fn take(&mut self, token_text: TokenText<'_>, text: &mut String) {
        match (&mut self.held, token_text) {
            (Held::Tail(tail), TokenText::Text(bytes)) => join_bytes(tail, bytes, text),
            (Held::Tail(tail), TokenText::Byte(byte)) => join_bytes(tail, &[byte], text),
            (Held::Run(run), TokenText::Byte(byte)) => {
                let certain = run.push(byte);
                self.append(&REPLACEMENT.repeat(certain), text);
            }
            (Held::Run(run), TokenText::Text(bytes)) => {
                let end = mem::take(run).end();
                self.append(&end, text);
                self.append(&String::from_utf8_lossy(bytes), text);
            }
            (Held::Ids(_), _) => unreachable!("`push` only stores these tokens"),
        }
    }

    /// Appends `more` to the text, stripping characters at the start of the whole text.
    fn append(&mut self, mut more: &str, text: &mut String) {
        if let Joining::Text { stripped, .. } = self.tokenizer.vocabulary().joining() {
            while self.to_strip > 0 && !more.is_empty() {
                if let Some(rest) = more.strip_prefix(stripped) {
                    more = rest;
                    self.to_strip -= 1;
                } else {
                    self.to_strip = 0;
                }
            }
        }
        text.push_str(more);
    }
}

/// The text of a single token, special or not.
///
/// # Errors
///
/// If the tokenizer cannot decode it.
pub fn decode_one(tokenizer: &Arc<dyn TextTokenizer>, id: i32) -> Result<String, TokenizeError> {
    let options = DecodeOptions {
        skip_special_tokens: false,
        ..DecodeOptions::default()
    };
    let mut decoder = Decoder::new(Arc::clone(tokenizer), options);
    let mut text = decoder.push(&[id]);
    text.push_str(&decoder.finish()?);
    Ok(text)
}

/// Appends the complete characters of `tail` + `bytes` to `text`; leaves an incomplete one in
/// `tail`.
fn join_bytes(tail: &mut Vec<u8>, bytes: &[u8], text: &mut String) {
    tail.extend_from_slice(bytes);
    let mut rest = tail.as_slice();
    loop {
        match str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                rest = &[];
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text.push_str(str::from_utf8(valid).unwrap_or_default());
                rest = after;
                if let Some(invalid) = error.error_len() {
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[invalid..];
                    continue;
                }
            }
        }
        break;
    }
    let kept = tail.len() - rest.len();
    tail.drain(..kept);
}

/// A run of byte tokens: text if the whole run is valid UTF-8, otherwise one U+FFFD per byte.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    /// Length of the complete characters at the start of `bytes`.
    valid: usize,
    /// Whether the run contains invalid UTF-8. Then nothing is held back.
    invalid: bool,
}

impl Run {
    /// Adds a byte, and returns how many U+FFFD are certain now.
    fn push(&mut self, byte: u8) -> usize {
        if self.invalid {
            return 1;
        }
        self.bytes.push(byte);
        match str::from_utf8(&self.bytes[self.valid..]) {
            Ok(_) => self.valid = self.bytes.len(),
            Err(error) if error.error_len().is_none() => (),
            Err(_) => {
                self.invalid = true;
                return mem::take(&mut self.bytes).len();
            }
        }
        0
    }

    fn end(self) -> String {
        if self.valid == self.bytes.len() {
            String::from_utf8(self.bytes).unwrap_or_default()
        } else {
            REPLACEMENT.repeat(self.bytes.len())
        }
    }
}
