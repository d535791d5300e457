//! Text to tokens, and what each token says.
//!
//! A tokenizer has two halves: it encodes text, and its [`Vocabulary`] says what text each
//! token stands for, from which the detokenizer builds answers piece by piece.
//!
//! Invariant: the ids are those that the Python package gives for the same file, and no
//! text makes a worker end.

mod bytes;
mod hugging_face;
mod pool;
mod vocabulary;

#[cfg(test)]
pub(crate) mod samples;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub use bytes::ByteTokenizer;
pub use hugging_face::HuggingFace;
pub use pool::{Answer, Job, Pool, Tokenized};
pub use vocabulary::{Form, Joining, Piece, Vocabulary};

/// Makes tokens of text, and text of tokens.
pub trait TextTokenizer: Send + Sync {
    /// The tokens of `text`, with special tokens before and after it where `special` asks
    /// for those that the tokenizer adds by itself. Special tokens written out in the text
    /// are tokens either way.
    ///
    /// # Errors
    ///
    /// When the tokenizer has no tokens for the text.
    fn encode_with(&self, text: &str, special: AutoSpecials) -> Result<Vec<i32>, TokenizeError>;

    /// The text of `ids` as a whole: what a detokenizer must give in the end.
    ///
    /// # Errors
    ///
    /// When the tokenizer cannot join these tokens.
    fn decode(&self, ids: &[i32], skip_special_tokens: bool) -> Result<String, TokenizeError>;

    /// What each token says.
    fn vocabulary(&self) -> &Vocabulary;

    /// As [`Self::encode_with`], with the special tokens.
    ///
    /// # Errors
    ///
    /// When the tokenizer has no tokens for the text.
    fn encode(&self, text: &str) -> Result<Vec<i32>, TokenizeError> {
        self.encode_with(text, AutoSpecials::Added)
    }

    /// The special tokens that [`Self::encode`] adds: the tokens of no text.
    fn auto_specials(&self) -> Vec<i32> {
        self.encode("").unwrap_or_default()
    }

    /// One more than the highest token.
    fn vocab_size(&self) -> usize {
        self.vocabulary().len()
    }
}

/// Whether text gets the special tokens that its tokenizer adds by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoSpecials {
    /// As a prompt typed by somebody.
    Added,
    /// As text that has them already, such as a rendered template.
    Absent,
}

/// Text that could not be made tokens, or the reverse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenizeError(pub String);

/// A tokenizer that could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is no such file, or it cannot be read.
    #[error("could not read tokenizer `{}`: {source} (nothing is fetched: give a local path)", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A folder without one.
    #[error(
        "no `{}` in `{}`: give a folder that has one, or the file itself (other formats have to be converted)",
        hugging_face::FILE,
        folder.display()
    )]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// A file that is something else.
    #[error("`{}` is not a tokenizer of the `tokenizers` library: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the library says.
        reason: String,
    },
}

/// The tokenizer at `path`, which is a `tokenizer.json` or a folder that has one; without a
/// path the built-in one.
///
/// # Errors
///
/// When there is none, or it cannot be read. Nothing is ever fetched.
pub fn load(path: Option<&Path>) -> Result<Arc<dyn TextTokenizer>, LoadError> {
    Ok(match path {
        Some(path) => Arc::new(HuggingFace::load(path)?),
        None => Arc::new(ByteTokenizer::default()),
    })
}
