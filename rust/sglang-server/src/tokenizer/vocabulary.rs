//! What each token says, and how what tokens say becomes text.
//!
//! A *form* is what one token adds to the text: some bytes, or one byte of a character that
//! its neighbours complete. The first token of a text may have another form than later
//! ones (most often it loses the space before it).
//!
//! Invariant: with any joining but [`Joining::Whole`] the forms are all there is to know:
//! joined in order they are the text that the tokenizer itself decodes.

/// How forms become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joining {
    /// Forms are pieces of UTF-8 that tokens cut anywhere. What is not UTF-8 becomes
    /// U+FFFD, one for each invalid sequence.
    Bytes,
    /// Forms are text. A run of [`Form::Byte`] is text if all of it is UTF-8, and one U+FFFD
    /// for each byte otherwise. Up to `strip` characters `stripped` are taken from the
    /// beginning of the whole.
    Text {
        /// The character.
        stripped: char,
        /// How many of them at most.
        strip: usize,
    },
    /// What a token says depends on more than its place: only the tokenizer itself can tell,
    /// once it has seen all tokens.
    Whole,
}

/// What one token adds to a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// Some bytes; UTF-8 unless the joining is [`Joining::Bytes`].
    Text(&'a [u8]),
    /// One byte of a run.
    Byte(u8),
}

/// One token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// What it adds at the beginning of a text.
    pub first: Form<'a>,
    /// What it adds elsewhere.
    pub later: Form<'a>,
    /// Whether it stands for something that is no text, such as the end of a turn.
    pub special: bool,
}

/// The pieces by id. Ids may have gaps.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    joining: Joining,
    /// The bytes of all forms, one after the other.
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

    /// Adds the token with the next id; nothing is a gap.
    ///
    /// # Panics
    ///
    /// When all texts together reach 4 GiB.
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

    /// How forms become text.
    #[must_use]
    pub fn joining(&self) -> Joining {
        self.joining
    }

    /// One more than the highest id.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The token `id`, if there is one.
    #[must_use]
    pub fn piece(&self, id: i32) -> Option<Piece<'_>> {
        let token = (*self.tokens.get(usize::try_from(id).ok()?)?)?;
        Some(Piece {
            first: self.form(token.first),
            later: self.form(token.later),
            special: token.special,
        })
    }

    fn store(&mut self, form: Form<'_>) -> Stored {
        match form {
            Form::Byte(byte) => Stored::Byte(byte),
            Form::Text(text) => {
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

    fn form(&self, stored: Stored) -> Form<'_> {
        match stored {
            Stored::Byte(byte) => Form::Byte(byte),
            Stored::Text { start, end } => Form::Text(&self.bytes[start as usize..end as usize]),
        }
    }
}
