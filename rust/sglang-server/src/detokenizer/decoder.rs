//! Tokens to text as they come.
//!
//! Each token gives the text that no later token can change; the rest is held back: the
//! beginning of a character whose last bytes are missing, or a run of byte tokens that is
//! no text unless all of it is.
//!
//! Invariant: what [`Decoder::push`] and [`Decoder::finish`] give is, put together, what the
//! tokenizer decodes from all tokens at once, however they were divided; and a token costs
//! the same after ten as after ten thousand.

use std::{mem, str, sync::Arc};

use crate::tokenizer::{Form, Joining, Piece, TextTokenizer, TokenizeError};

const REPLACEMENT: &str = "\u{FFFD}";

/// How tokens become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Whether special tokens have no text.
    pub skip_special_tokens: bool,
    /// Whether two special tokens in a row are apart as the tokenizer has it (`WordPiece` puts
    /// a space there); otherwise nothing is between them.
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

/// The text of one sequence of tokens, so far.
pub struct Decoder {
    tokenizer: Arc<dyn TextTokenizer>,
    options: DecodeOptions,
    /// What the token before the next one was.
    before: Before,
    /// How many characters may still be taken from the beginning.
    to_strip: usize,
    held: Held,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Text,
    Special,
}

/// What is not certain yet.
enum Held {
    /// The beginning of one character: at most three bytes.
    Tail(Vec<u8>),
    /// A run of byte tokens.
    Run(Run),
    /// All tokens.
    Ids(Vec<i32>),
}

impl Decoder {
    /// The text of no tokens yet.
    #[must_use]
    pub fn new(tokenizer: Arc<dyn TextTokenizer>, options: DecodeOptions) -> Self {
        let (held, to_strip) = match tokenizer.vocabulary().joining() {
            Joining::Bytes => (Held::Tail(Vec::new()), 0),
            Joining::Text { strip, .. } => (Held::Run(Run::default()), strip),
            Joining::Whole => (Held::Ids(Vec::new()), 0),
        };
        Self {
            tokenizer,
            options,
            before: Before::Nothing,
            to_strip,
            held,
        }
    }

    /// Takes the next tokens, and gives the text that is certain now. Ids that are no
    /// tokens have no text.
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
            let form = self.form(piece);
            self.take(form, &mut text);
        }
        text
    }

    /// Gives what was held back.
    ///
    /// # Errors
    ///
    /// When the tokenizer, which decides at the end, cannot join the tokens.
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

    fn form<'a>(&mut self, piece: Piece<'a>) -> Form<'a> {
        let joined = piece.special
            && self.before == Before::Special
            && !self.options.spaces_between_special_tokens;
        let form = if self.before == Before::Nothing || joined {
            piece.first
        } else {
            piece.later
        };
        self.before = if piece.special {
            Before::Special
        } else {
            Before::Text
        };
        form
    }

    fn take(&mut self, form: Form<'_>, text: &mut String) {
        match (&mut self.held, form) {
            (Held::Tail(tail), Form::Text(bytes)) => join_bytes(tail, bytes, text),
            (Held::Tail(tail), Form::Byte(byte)) => join_bytes(tail, &[byte], text),
            (Held::Run(run), Form::Byte(byte)) => {
                let certain = run.push(byte);
                self.append(&REPLACEMENT.repeat(certain), text);
            }
            (Held::Run(run), Form::Text(bytes)) => {
                let end = mem::take(run).end();
                self.append(&end, text);
                self.append(&String::from_utf8_lossy(bytes), text);
            }
            (Held::Ids(_), _) => unreachable!("`push` keeps tokens whose forms say nothing"),
        }
    }

    /// Appends `more`, without what is taken from the beginning of the whole.
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

/// The text of one token alone, special or not.
///
/// # Errors
///
/// When the tokenizer cannot decode it.
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

/// Appends what `tail` and `bytes` say; keeps the beginning of a character in `tail`.
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

/// Byte tokens in a row: text if all of it is UTF-8, otherwise a U+FFFD for each byte.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    /// How many of `bytes` are whole characters.
    valid: usize,
    /// Whether it cannot be text any more: then nothing is held.
    broken: bool,
}

impl Run {
    /// Takes a byte, and gives how many U+FFFD are certain now.
    fn push(&mut self, byte: u8) -> usize {
        if self.broken {
            return 1;
        }
        self.bytes.push(byte);
        match str::from_utf8(&self.bytes[self.valid..]) {
            Ok(_) => self.valid = self.bytes.len(),
            Err(error) if error.error_len().is_none() => (),
            Err(_) => {
                self.broken = true;
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
