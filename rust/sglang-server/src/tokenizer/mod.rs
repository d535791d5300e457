//! Tokenizers, from `sglang-tokenizer`, and the threads that tokenize prompts.
//!
//! Invariant: a worker thread survives any input text.

mod pool;

pub(crate) use pool::{Job, OnTokenized, Pool, Tokenized};
#[cfg(test)]
pub(crate) use sglang_tokenizer::samples;
pub use sglang_tokenizer::{
    AutoSpecials, ByteTokenizer, Joining, LoadError, Piece, TextTokenizer, TokenText,
    TokenizeError, Vocabulary, load,
};
