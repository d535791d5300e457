//! Shortens text from callers and servers for error messages.
//!
//! Invariant: an excerpt is short, in a log and in memory, for text of any length.

use std::fmt::{self, Display, Write};

/// The largest number of characters that are kept.
const MAX_CHARS: usize = 200;

/// The start of `text`, followed by its full length if it was shortened.
pub(crate) fn excerpt(text: impl Display) -> String {
    let mut start = Start::default();
    // Writing to `Start` cannot fail. If the `Display` fails, its text so far is used.
    let _ = write!(start, "{text}");
    let Start { text, length } = start;
    if length > MAX_CHARS {
        return format!("{text}... ({length} characters)");
    }
    text
}

/// A writer that keeps the first characters and counts all of them.
#[derive(Default)]
struct Start {
    text: String,
    length: usize,
}

impl Write for Start {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let room = MAX_CHARS.saturating_sub(self.length);
        self.text.extend(piece.chars().take(room));
        self.length += piece.chars().count();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_CHARS, excerpt};

    #[test]
    fn long_texts_are_shortened_between_characters() {
        let letters = "x".repeat(MAX_CHARS);
        let signs = "\u{1f600}".repeat(MAX_CHARS);
        #[rustfmt::skip]
        let cases = [
            ("empty",              String::new(),        String::new()),
            ("short",              "file".to_owned(),    "file".to_owned()),
            ("exactly the limit",  letters.clone(),      letters.clone()),
            ("one character more", format!("{letters}y"), format!("{letters}... (201 characters)")),
            ("wide characters",    signs.clone(),        signs.clone()),
            ("one wide more",      format!("{signs}!"),  format!("{signs}... (201 characters)")),
        ];
        for (name, text, expected) in cases {
            assert_eq!(expected, excerpt(&text), "{name}");
            // In two pieces, as formatting machinery writes them.
            let (head, tail) = text.split_at(text.len() / 8 * 4);
            assert_eq!(expected, excerpt(format_args!("{head}{tail}")), "{name}");
        }
    }
}
