//! Tokenizers of the `tokenizers` library, loaded from a `tokenizer.json`.
//!
//! At load time the library's decoder is run once for each token, both as the first token of a
//! text and as a later one. The results fill the [`Vocabulary`].
//!
//! Invariant: the text that the library decodes from all tokens at once is the correct one. If a
//! decoder does not work token by token, the text is decoded only at the end.

use std::{
    collections::HashMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::LazyLock,
};

use tokenizers::{Decoder as _, DecoderWrapper, Tokenizer};

use super::{
    AutoSpecials, Joining, LoadError, Piece, TextTokenizer, TokenText, TokenizeError, Vocabulary,
};

/// Name of the tokenizer file in a model folder.
pub(super) const FILE: &str = "tokenizer.json";
/// Upper limit for token ids. No real vocabulary is that large, and the table of texts must not
/// grow to the largest id of a damaged file.
const MAX_IDS: usize = 1 << 24;

/// A tokenizer of the `tokenizers` library.
#[derive(Debug)]
pub(crate) struct HuggingFace {
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
}

impl HuggingFace {
    /// Loads the tokenizer at `path`: a `tokenizer.json`, or a folder that contains one.
    ///
    /// # Errors
    ///
    /// If the file is missing, unreadable or invalid.
    pub(crate) fn load(path: &Path) -> Result<Self, LoadError> {
        let path = if path.is_dir() {
            let file = path.join(FILE);
            if !file.exists() {
                return Err(LoadError::Missing {
                    folder: path.to_owned(),
                });
            }
            file
        } else {
            path.to_owned()
        };
        let json = fs::read(&path).map_err(|source| LoadError::Unreadable {
            path: path.clone(),
            source,
        })?;
        // The library panics on some files.
        let read = catch_unwind(AssertUnwindSafe(|| {
            let tokenizer = Tokenizer::from_bytes(&json).map_err(|error| error.to_string())?;
            Self::new(tokenizer).map_err(|error| error.to_string())
        }));
        let read = read.unwrap_or_else(|_| Err("the library panics on it".to_owned()));
        let read = read.map_err(|reason| LoadError::Malformed {
            path: path.clone(),
            reason,
        })?;
        if read.vocabulary.joining() == Joining::AllAtOnce {
            let path = path.display();
            tracing::warn!(
                "the decoder of `{path}` cannot decode token by token: streams get their text at the end"
            );
        }
        Ok(read)
    }

    /// Wraps a tokenizer that is already in memory.
    ///
    /// # Errors
    ///
    /// If its decoder fails on one of its own tokens, or a token id is 2^24 or more.
    pub(crate) fn new(mut tokenizer: Tokenizer) -> Result<Self, TokenizeError> {
        // Files may contain settings from training; prompts must not be truncated or padded.
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|error| failed(&error))?;
        let vocabulary = vocabulary(&tokenizer)?;
        Ok(Self {
            tokenizer,
            vocabulary,
        })
    }
}

impl TextTokenizer for HuggingFace {
    fn encode_with(&self, text: &str, special: AutoSpecials) -> Result<Vec<i32>, TokenizeError> {
        let encoding = self
            .tokenizer
            .encode_fast(text, special == AutoSpecials::Added);
        let ids = encoding.map_err(|error| failed(&error))?;
        Ok(ids.get_ids().iter().map(|&id| id as i32).collect())
    }

    fn decode(&self, ids: &[i32], skip_special_tokens: bool) -> Result<String, TokenizeError> {
        let kept = |&id: &i32| {
            let piece = self.vocabulary.piece(id)?;
            (!piece.special || !skip_special_tokens).then_some(id as u32)
        };
        let kept: Vec<u32> = ids.iter().filter_map(kept).collect();
        if kept.is_empty() {
            // Some of the library's decoders panic on an empty list.
            return Ok(String::new());
        }
        self.tokenizer
            .decode(&kept, skip_special_tokens)
            .map_err(|error| failed(&error))
    }

    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }
}

fn failed(error: &tokenizers::Error) -> TokenizeError {
    TokenizeError(error.to_string())
}

/// How a decoder of the library works: steps for single tokens, then a way to join their texts.
struct Plan<'a> {
    /// Steps that map each token to one text. The text depends only on the token and on whether
    /// it is the first one.
    per_token: Vec<&'a DecoderWrapper>,
    byte_fallback: bool,
    joining: Joining,
}

const PLAIN: Joining = Joining::Text {
    stripped: ' ',
    strip: 0,
};

impl<'a> Plan<'a> {
    fn new(decoder: Option<&'a DecoderWrapper>) -> Self {
        let steps = decoder.map_or_else(Vec::new, flatten);
        let is_per_token = |step: &&DecoderWrapper| {
            matches!(
                step,
                DecoderWrapper::Replace(_)
                    | DecoderWrapper::Strip(_)
                    | DecoderWrapper::Metaspace(_)
                    | DecoderWrapper::WordPiece(_)
            )
        };
        let count = steps.iter().take_while(|step| is_per_token(step)).count();
        let (per_token, rest) = steps.split_at(count);
        let byte_fallback = matches!(rest, [DecoderWrapper::ByteFallback(_), ..]);
        let joining = match &rest[usize::from(byte_fallback)..] {
            [] | [DecoderWrapper::Fuse(_)] => PLAIN,
            [DecoderWrapper::ByteLevel(_)] if !byte_fallback => Joining::Bytes,
            [DecoderWrapper::Fuse(_), DecoderWrapper::Strip(strip)] if strip.stop == 0 => {
                Joining::Text {
                    stripped: strip.content,
                    strip: strip.start,
                }
            }
            _ => Joining::AllAtOnce,
        };
        Self {
            per_token: per_token.to_vec(),
            byte_fallback,
            joining,
        }
    }

    /// The text of `token` as the first token, and as a later one.
    fn texts(&self, token: &str) -> Result<(Vec<u8>, Vec<u8>), TokenizeError> {
        let first = self.last_text(vec![token.to_owned()])?;
        let depends_on_place = |step: &&DecoderWrapper| {
            matches!(
                step,
                DecoderWrapper::Metaspace(_) | DecoderWrapper::WordPiece(_)
            )
        };
        let later = if self.per_token.iter().any(depends_on_place) {
            self.last_text(vec![".".to_owned(), token.to_owned()])?
        } else {
            first.clone()
        };
        Ok((first, later))
    }

    /// The text of the last of `tokens`.
    fn last_text(&self, mut tokens: Vec<String>) -> Result<Vec<u8>, TokenizeError> {
        for step in &self.per_token {
            tokens = step.decode_chain(tokens).map_err(|error| failed(&error))?;
        }
        let text = tokens.pop().unwrap_or_default();
        let bytes = (self.joining == Joining::Bytes).then(|| text.chars().map(byte_of).collect());
        // A token with a character outside the byte alphabet, such as an added token, is plain
        // text.
        Ok(bytes.flatten().unwrap_or_else(|| text.into_bytes()))
    }
}

/// The single decoders of nested sequences, in order.
fn flatten(decoder: &DecoderWrapper) -> Vec<&DecoderWrapper> {
    match decoder {
        DecoderWrapper::Sequence(steps) => steps.get_decoders().iter().flat_map(flatten).collect(),
        step => vec![step],
    }
}

fn vocabulary(tokenizer: &Tokenizer) -> Result<Vocabulary, TokenizeError> {
    let ids = tokenizer.get_vocab(true).into_values().max();
    let ids = ids.map_or(0, |id| id as usize + 1);
    if ids > MAX_IDS {
        return Err(TokenizeError(format!(
            "token id {} is out of range",
            ids - 1
        )));
    }
    let plan = Plan::new(tokenizer.get_decoder());
    let add_spaces = tokenizer.get_decoder().is_none();
    let mut vocabulary = Vocabulary::new(plan.joining);
    for id in 0..ids as u32 {
        let Some(token) = tokenizer.id_to_token(id) else {
            vocabulary.push(None);
            continue;
        };
        let (first, mut later) = plan.texts(&token)?;
        if add_spaces {
            // Without a decoder the library puts spaces between tokens.
            later.insert(0, b' ');
        }
        let with_fallback = |text| match text {
            TokenText::Text(bytes) if plan.byte_fallback => {
                fallback_byte(bytes).map_or(text, TokenText::Byte)
            }
            text => text,
        };
        vocabulary.push(Some(Piece {
            first: with_fallback(TokenText::Text(&first)),
            later: with_fallback(TokenText::Text(&later)),
            special: tokenizer.get_added_vocabulary().is_special_token(&token),
        }));
    }
    Ok(vocabulary)
}

/// The byte that a token such as `<0xE2>` stands for.
fn fallback_byte(token: &[u8]) -> Option<u8> {
    let digits = token.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// Maps the characters of byte-level tokens to bytes. The character of a printable byte has that
/// byte as its code point. The other bytes have the characters from U+0100 on, in order.
static ALPHABET: LazyLock<HashMap<char, u8>> = LazyLock::new(|| {
    let mut others = '\u{100}'..;
    let character = |byte: u8| match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        _ => others.next().expect("68 characters follow U+0100"),
    };
    (0..=u8::MAX).map(character).zip(0..=u8::MAX).collect()
});

fn byte_of(character: char) -> Option<u8> {
    ALPHABET.get(&character).copied()
}

#[cfg(test)]
mod tests {
    use std::{
        env, fs,
        path::{Path, PathBuf},
        process,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use crate::{AutoSpecials, LoadError, load, samples};

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("sglang-tokenizer-{}-{number}", process::id());
            let path = env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn without_auto_specials_the_other_tokens_are_the_same() {
        let tokenizer = samples::byte_level_bpe();
        let special = tokenizer.auto_specials();
        assert_eq!(vec![0], special);
        for text in samples::TEXTS {
            let with = tokenizer.encode(text).unwrap();
            let without = tokenizer.encode_with(text, AutoSpecials::Absent).unwrap();
            assert_eq!(
                with.strip_prefix(special.as_slice()),
                Some(without.as_slice()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn skip_special_tokens_leaves_out_the_auto_specials() {
        let tokenizer = samples::byte_level_bpe();
        let ids = tokenizer.encode("한 tool<|end|>").unwrap();
        assert_eq!("한 tool", tokenizer.decode(&ids, true).unwrap());
        assert_eq!(
            "<|begin|>한 tool<|end|>",
            tokenizer.decode(&ids, false).unwrap()
        );
    }

    /// Tokenizer files may contain such settings from training.
    #[test]
    fn prompts_are_neither_truncated_nor_padded() {
        let folder = Folder::new();
        let file = folder.0.join("tokenizer.json");
        let settings = r#""truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
            "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}"#;
        let model = r#""model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "pre_tokenizer": {"type": "Whitespace"}"#;
        fs::write(
            &file,
            format!(r#"{{"version": "1.0", {settings}, "added_tokens": [], {model}}}"#),
        )
        .unwrap();
        // The file, and the folder that contains it.
        for path in [&file, &folder.0] {
            let tokenizer = load(Some(path)).unwrap();
            assert_eq!(vec![0; 4], tokenizer.encode("a a a a").unwrap());
        }
    }

    #[test]
    fn load_errors_name_the_path_and_the_reason() {
        let folder = Folder::new();
        let write = |name: &str, content: &str| {
            let path = folder.0.join(name);
            fs::write(&path, content).unwrap();
            path
        };
        #[rustfmt::skip]
        let cases = [
            (folder.0.clone(),                     "no `tokenizer.json` in `"),
            (folder.0.join("absent.json"),            "could not read tokenizer `"),
            (write("empty.json", ""),                      "is not a tokenizer of the `tokenizers` library: "),
            (write("other.json", "{\"a\": 1}"),            "is not a tokenizer of the `tokenizers` library: "),
            (write("binary.model", "\u{0}\u{1}"),          "is not a tokenizer of the `tokenizers` library: "),
            (write("far.json", &json_with_huge_id()),                    "token id 4294967295 is out of range"),
        ];
        for (path, expected) in cases {
            let error = load(Some(&path)).err().unwrap();
            let text = error.to_string();
            assert!(text.contains(expected), "{text}");
            assert!(text.contains(&*path.to_string_lossy()), "{text}");
            assert_eq!(
                expected.starts_with("could"),
                matches!(error, LoadError::Unreadable { .. })
            );
        }
        assert!(load(None).is_ok());
        assert!(load(Some(Path::new(""))).is_err());
    }

    fn json_with_huge_id() -> String {
        r#"{"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 4294967295}, "unk_token": "a"}}"#.to_owned()
    }
}
