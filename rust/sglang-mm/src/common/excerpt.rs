//! Text of callers and servers as errors repeat it: enough to know it again.
//!
//! Invariant: an error is short, in a log and in memory, however long what it speaks of is.

use std::fmt::{self, Display, Write};

/// Most characters of it.
const MOST: usize = 200;

/// The beginning of `text`; if that is not all, how long it is.
pub(crate) fn excerpt(text: impl Display) -> String {
    let mut start = Start::default();
    // Writing to it cannot fail, and a `Display` that fails has said what it could.
    let _ = write!(start, "{text}");
    let Start { text, length } = start;
    if length > MOST {
        return format!("{text}... ({length} characters)");
    }
    text
}

/// The first characters of what is written to it, and the number of all.
#[derive(Default)]
struct Start {
    text: String,
    length: usize,
}

impl Write for Start {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let room = MOST.saturating_sub(self.length);
        self.text.extend(piece.chars().take(room));
        self.length += piece.chars().count();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, excerpt};

    #[test]
    fn long_texts_are_cut_between_characters() {
        let letters = "x".repeat(MOST);
        let signs = "\u{1f600}".repeat(MOST);
        #[rustfmt::skip]
        let cases = [
            ("nothing",            String::new(),        String::new()),
            ("short",              "file".to_owned(),    "file".to_owned()),
            ("as long as may be",  letters.clone(),      letters.clone()),
            ("one more",           format!("{letters}y"), format!("{letters}... (201 characters)")),
            ("wide characters",    signs.clone(),        signs.clone()),
            ("one more of them",   format!("{signs}!"),  format!("{signs}... (201 characters)")),
        ];
        for (name, text, expected) in cases {
            assert_eq!(expected, excerpt(&text), "{name}");
            // In two pieces, as formatted values come.
            let (head, tail) = text.split_at(text.len() / 8 * 4);
            assert_eq!(expected, excerpt(format_args!("{head}{tail}")), "{name}");
        }
    }
}
