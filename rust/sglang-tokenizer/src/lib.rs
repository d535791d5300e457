//! Tokenizers: encode text into tokens, and give the text of each token.
//!
//! The detokenizer builds answers incrementally from the tokenizer's [`Vocabulary`], which holds
//! the text of each token.
//!
//! This crate separates the library `tokenizers` from its users. The library reads its files with
//! generic code, which is compiled in the crate that calls it. That crate is this one, so an edit of
//! the server does not compile that code again.
//!
//! Invariants: the ids equal those of the Python package `tokenizers` for the same file. No type of
//! the library and no generic function is public.

mod bytes;
mod hugging_face;
mod vocabulary;

#[cfg(any(test, feature = "samples"))]
pub mod samples;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub use bytes::ByteTokenizer;
use hugging_face::HuggingFace;
pub use vocabulary::{Joining, Piece, TokenText, Vocabulary};

/// Converts between text and tokens.
pub trait TextTokenizer: Send + Sync {
    /// The tokens of `text`. `special` decides whether the tokenizer adds its special tokens
    /// before and after the text. Special tokens written in the text itself are always
    /// recognised.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot encode the text.
    fn encode_with(&self, text: &str, special: AutoSpecials) -> Result<Vec<i32>, TokenizeError>;

    /// The text of the complete sequence `ids`. Incremental decoding must give the same text.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot decode these tokens.
    fn decode(&self, ids: &[i32], skip_special_tokens: bool) -> Result<String, TokenizeError>;

    /// The text of each token.
    fn vocabulary(&self) -> &Vocabulary;

    /// As [`Self::encode_with`], with [`AutoSpecials::Added`].
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot encode the text.
    fn encode(&self, text: &str) -> Result<Vec<i32>, TokenizeError> {
        self.encode_with(text, AutoSpecials::Added)
    }

    /// The special tokens that [`Self::encode`] adds: the tokens of the empty text.
    fn auto_specials(&self) -> Vec<i32> {
        self.encode("").unwrap_or_default()
    }

    /// The highest token id plus one.
    fn vocab_size(&self) -> usize {
        self.vocabulary().len()
    }
}

/// Whether the tokenizer adds its special tokens to a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoSpecials {
    /// For a plain prompt.
    Added,
    /// For text that contains them already, such as a rendered chat template.
    Absent,
}

/// Encoding or decoding failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenizeError(pub String);

/// A tokenizer could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file does not exist or cannot be read.
    #[error("could not read tokenizer `{}`: {source} (give a local path: nothing is downloaded)", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The folder has no `tokenizer.json`.
    #[error(
        "no `{}` in `{}`: give a folder that has one, or the file itself (convert other formats first)",
        hugging_face::FILE,
        folder.display()
    )]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// The file is not a tokenizer.
    #[error("`{}` is not a tokenizer of the `tokenizers` library: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error of the library.
        reason: String,
    },
}

/// Loads the tokenizer at `path`: a `tokenizer.json`, or a folder that contains one. Without a
/// path, returns the built-in tokenizer. Never downloads anything.
///
/// # Errors
///
/// If the file is missing, unreadable or invalid.
///
/// # Example
///
/// ```
/// let tokenizer = sglang_tokenizer::load(None)?;
/// let ids = tokenizer.encode("hi")?;
/// assert_eq!(vec![104, 105], ids);
/// assert_eq!("hi", tokenizer.decode(&ids, true)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn load(path: Option<&Path>) -> Result<Arc<dyn TextTokenizer>, LoadError> {
    Ok(match path {
        Some(path) => Arc::new(HuggingFace::load(path)?),
        None => Arc::new(ByteTokenizer::default()),
    })
}
