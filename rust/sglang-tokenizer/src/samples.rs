//! Small tokenizers of each kind, for the tests of this crate and of its users.

// The samples are valid, so none of the functions panics.
#![allow(clippy::missing_panics_doc)]

use std::sync::Arc;

use serde_json::{Value, json};
use tokenizers::{
    AddedToken, Tokenizer,
    decoders::byte_level::ByteLevel,
    models::{
        TrainerWrapper,
        bpe::{BPE, BpeTrainer},
    },
    processors::template::TemplateProcessing,
};

use super::{AutoSpecials, ByteTokenizer, HuggingFace, TextTokenizer, TokenizeError, Vocabulary};

/// Texts with characters that are often split over tokens.
pub const TEXTS: &[&str] = &[
    "",
    "한국어 👨‍👩‍👧 é \u{2028} ✅",
    "fn main() {\n\tprintln!(\"{}\", x?.y());\n}\n",
    "don't stop , says she . ' s",
    "  two  spaces  ",
    "▁한▁ <0x41> ##a",
    "नमस्ते e\u{301} \u{0} \u{10FFFF}",
];

/// One tokenizer of each kind, with its name.
#[must_use]
pub fn all() -> Vec<(&'static str, Arc<dyn TextTokenizer>)> {
    vec![
        ("bytes", Arc::new(ByteTokenizer::default())),
        ("byte-level BPE", byte_level_bpe()),
        ("WordPiece", word_piece()),
        (
            "Metaspace",
            words(&json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})),
        ),
        (
            "Metaspace, none prepended",
            words(&json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})),
        ),
        ("byte fallback", byte_fallback()),
        ("no decoder", words(&Value::Null)),
        (
            "end-of-word suffix",
            words(&json!({"type": "BPEDecoder", "suffix": "▁"})),
        ),
        (
            "CTC",
            words(
                &json!({"type": "CTC", "pad_token": "a", "word_delimiter_token": "▁", "cleanup": true}),
            ),
        ),
        (
            "stripped at the end",
            words(&json!({"type": "Sequence", "decoders": [
            {"type": "Fuse"}, {"type": "Strip", "content": "é", "start": 0, "stop": 1}]})),
        ),
    ]
}

/// A byte-level BPE tokenizer like that of Qwen and Llama 3, trained on [`TEXTS`]. The special
/// token `<|begin|>` is added before every text, `<|end|>` is not. `한 tool` is an added token that
/// is not special.
#[must_use]
pub fn byte_level_bpe() -> Arc<dyn TextTokenizer> {
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    let mut trainer: TrainerWrapper = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(420)
        .min_frequency(1)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(vec![
            AddedToken::from("<|begin|>", true),
            AddedToken::from("<|end|>", true),
        ])
        .build()
        .into();
    let texts = TEXTS.iter().flat_map(|text| [*text; 3]);
    tokenizer.train(&mut trainer, texts).unwrap();
    tokenizer.add_tokens(&[AddedToken::from("한 tool", false)]);
    let template = TemplateProcessing::builder()
        .try_single("<|begin|> $A")
        .unwrap()
        .special_tokens(vec![("<|begin|>", 0)])
        .build()
        .unwrap();
    tokenizer.with_post_processor(Some(template));
    Arc::new(HuggingFace::new(tokenizer).unwrap())
}

/// A `WordPiece` tokenizer like that of BERT. `[CLS]` is token 1, `[SEP]` is token 2.
#[must_use]
pub fn word_piece() -> Arc<dyn TextTokenizer> {
    let words = [
        "[UNK]", "[CLS]", "[SEP]", "don", "'", "t", "##t", "n't", ".", ",", "한", "##국", "do",
        "not", "##'s", "é",
    ];
    let vocabulary: Value = words
        .iter()
        .zip(0..)
        .map(|(word, id)| ((*word).to_owned(), Value::from(id)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    from_json(&json!({
        "added_tokens": special(&[(1, "[CLS]"), (2, "[SEP]")]),
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    }))
}

/// A tokenizer like that of Llama 2: byte tokens for unknown text; the first space is stripped.
#[must_use]
pub fn byte_fallback() -> Arc<dyn TextTokenizer> {
    let mut words: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    words.extend((0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>")));
    words.extend(["▁", "a", "▁a", "한", "▁▁", "é", "b", "<0x4G>"].map(String::from));
    let vocabulary: Value = words
        .into_iter()
        .zip(0..)
        .map(|(word, id): (String, i32)| (word, Value::from(id)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    from_json(&json!({
        "added_tokens": special(&[(0, "<unk>"), (1, "<s>"), (2, "</s>")]),
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [["▁", "a"], ["▁", "▁"]], "byte_fallback": true, "unk_token": "<unk>"},
    }))
}

/// A small vocabulary of whole words, with the given decoder. `</s>` is token 1; ids 2 and 3 are
/// gaps.
fn words(decoder: &Value) -> Arc<dyn TextTokenizer> {
    let vocabulary = json!({"<unk>": 0, "</s>": 1, "a": 4, "▁a": 5, "▁": 6, "한▁국": 7, "é": 8, ".": 9, "'s": 10});
    from_json(&json!({
        "added_tokens": special(&[(1, "</s>")]),
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "▁?[^▁]"}, "behavior": "Isolated", "invert": false},
        "decoder": decoder,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }))
}

fn special(tokens: &[(u32, &str)]) -> Value {
    let token = |(id, content): &(u32, &str)| {
        json!({"id": id, "content": content, "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
    };
    tokens.iter().map(token).collect()
}

fn from_json(tokenizer: &Value) -> Arc<dyn TextTokenizer> {
    let mut whole = json!({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "pre_tokenizer": null, "post_processor": null});
    for (name, value) in tokenizer.as_object().unwrap() {
        whole[name] = value.clone();
    }
    let tokenizer = Tokenizer::from_bytes(whole.to_string()).unwrap();
    Arc::new(HuggingFace::new(tokenizer).unwrap())
}

/// A tokenizer that panics on a given text and token. Otherwise it behaves like `inner`.
pub struct Panicking {
    /// The tokenizer that handles all other input.
    pub inner: Arc<dyn TextTokenizer>,
    /// Encoding a text that contains this string panics.
    pub text: &'static str,
    /// [`TextTokenizer::decode`] panics on this token, and fails on the next one.
    pub id: i32,
}

impl TextTokenizer for Panicking {
    fn encode_with(&self, text: &str, special: AutoSpecials) -> Result<Vec<i32>, TokenizeError> {
        assert!(!text.contains(self.text), "on purpose");
        self.inner.encode_with(text, special)
    }

    fn decode(&self, ids: &[i32], skip_special_tokens: bool) -> Result<String, TokenizeError> {
        assert!(!ids.contains(&self.id), "on purpose");
        if ids.contains(&(self.id + 1)) {
            return Err(TokenizeError("on purpose".into()));
        }
        self.inner.decode(ids, skip_special_tokens)
    }

    fn vocabulary(&self) -> &Vocabulary {
        self.inner.vocabulary()
    }
}
