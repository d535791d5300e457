//! The text of each token, and how the texts of tokens are joined.
//!
//! A [`TokenText`] is the contribution of one token to the text: some bytes, or one byte of a
//! character that neighbouring tokens complete. A token may contribute a different text as the
//! first token than as a later one (usually without the space before it).
//!
//! Invariant: unless the joining is [`Joining::AllAtOnce`], the joined token texts equal the text
//! that the tokenizer decodes.

/// How token texts are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joining {
    /// Token texts are bytes; a character may be split over tokens. Each invalid UTF-8 sequence
    /// becomes one U+FFFD.
    Bytes,
    /// Token texts are valid UTF-8. A run of [`TokenText::Byte`] is text if the whole run is
    /// valid UTF-8, else one U+FFFD per byte. Up to `strip` times, `stripped` is removed from
    /// the start of the whole text.
    Text {
        /// The character to remove.
        stripped: char,
        /// Maximum number of characters to remove.
        strip: usize,
    },
    /// The text of a token depends on other tokens. So only the tokenizer can decode, and it needs
    /// all tokens.
    AllAtOnce,
}

/// The contribution of one token to the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenText<'a> {
    /// Some bytes; valid UTF-8 unless the joining is [`Joining::Bytes`].
    Text(&'a [u8]),
    /// One byte of a run of byte tokens.
    Byte(u8),
}

/// One token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Its contribution as the first token of a text.
    pub first: TokenText<'a>,
    /// Its contribution as a later token.
    pub later: TokenText<'a>,
    /// Whether it is a special token, such as the end of a turn.
    pub special: bool,
}

/// The tokens by id. Ids may have gaps.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    joining: Joining,
    /// The bytes of all token texts, concatenated.
    bytes: Vec<u8>,
    tokens: Vec<Option<Token>>,
}

#[derive(Clone, Copy, Debug)]
struct Token {
    first: Stored,
    later: Stored,
    special: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stored {
    Text { start: u32, end: u32 },
    Byte(u8),
}

impl Vocabulary {
    /// A vocabulary without tokens.
    #[must_use]
    pub fn new(joining: Joining) -> Self {
        Self {
            joining,
            bytes: Vec::new(),
            tokens: Vec::new(),
        }
    }

    /// Adds the token with the next id; `None` is a gap.
    ///
    /// # Panics
    ///
    /// If the total size of all texts reaches 4 GiB.
    pub fn push(&mut self, piece: Option<Piece<'_>>) {
        let token = piece.map(|piece| {
            let first = self.store(piece.first);
            Token {
                first,
                later: if piece.later == piece.first {
                    first
                } else {
                    self.store(piece.later)
                },
                special: piece.special,
            }
        });
        self.tokens.push(token);
    }

    /// How token texts are joined.
    #[must_use]
    pub fn joining(&self) -> Joining {
        self.joining
    }

    /// The highest id plus one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are no tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The token `id`, if there is one.
    #[must_use]
    pub fn piece(&self, id: i32) -> Option<Piece<'_>> {
        let token = (*self.tokens.get(usize::try_from(id).ok()?)?)?;
        Some(Piece {
            first: self.token_text(token.first),
            later: self.token_text(token.later),
            special: token.special,
        })
    }

    fn store(&mut self, text: TokenText<'_>) -> Stored {
        match text {
            TokenText::Byte(byte) => Stored::Byte(byte),
            TokenText::Text(text) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(text);
                let place = |at: usize| u32::try_from(at).expect("a vocabulary is below 4 GiB");
                Stored::Text {
                    start: place(start),
                    end: place(self.bytes.len()),
                }
            }
        }
    }

    fn token_text(&self, stored: Stored) -> TokenText<'_> {
        match stored {
            Stored::Byte(byte) => TokenText::Byte(byte),
            Stored::Text { start, end } => {
                TokenText::Text(&self.bytes[start as usize..end as usize])
            }
        }
    }
}
