//! Texts and profiles beside the pixels: not kept, but they may not be bombs.

use flate2::{Decompress, FlushDecompress, Status};

use super::super::error::DecodeError;
use super::corrupt;

/// Most bytes that one compressed text may grow to.
const MOST_IN_ONE: usize = 1 << 20;

/// Most bytes in all texts of a file.
const MOST_IN_ALL: usize = 64 * MOST_IN_ONE;

/// How much text was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextBudget {
    spent: usize,
}

impl TextBudget {
    pub(super) fn spend(&mut self, length: usize) -> Result<(), DecodeError> {
        self.spent = self.spent.saturating_add(length);
        if self.spent > MOST_IN_ALL {
            return Err(corrupt("too much text beside the pixels"));
        }
        Ok(())
    }
}

/// The length of a compressed text; none if it is not compressed properly, which is no error.
pub(super) fn compressed_text_fits(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    // Small, because a file may hold millions of tiny texts.
    let mut scratch = [0; 4096];
    let mut inflater = Decompress::new(true);
    loop {
        let length = inflater.total_out() as usize;
        let room = scratch.len().min(MOST_IN_ONE - length);
        let unread = &bytes[inflater.total_in() as usize..];
        match inflater.decompress(unread, &mut scratch[..room], FlushDecompress::None) {
            Err(_) => return Ok(None),
            Ok(Status::StreamEnd) => return Ok(Some(inflater.total_out() as usize)),
            Ok(_) if inflater.total_out() as usize > length => {}
            Ok(_) if (inflater.total_in() as usize) < bytes.len() => {
                return Err(corrupt("a text that grows too large"));
            }
            Ok(_) => return Ok(Some(length)),
        }
    }
}

/// The length of an international text, once inflated; 0 if it is malformed, which is no error.
pub(super) fn international_text(body: &[u8]) -> Result<usize, DecodeError> {
    let mut parts = body.splitn(2, |&byte| byte == 0);
    let (Some(_), Some([compressed, method, rest @ ..])) = (parts.next(), parts.next()) else {
        return Ok(0);
    };
    // Behind the language and the translated name comes the text.
    let Some(text) = rest.splitn(3, |&byte| byte == 0).nth(2) else {
        return Ok(0);
    };
    match (compressed, method) {
        (0, _) => Ok(text.len()),
        (_, 0) => Ok(compressed_text_fits(text)?.unwrap_or(0)),
        _ => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::ZlibEncoder};

    use super::*;

    fn compressed(length: usize) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&vec![b'a'; length]).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_text_may_grow_to_a_mebibyte() {
        assert_eq!(compressed_text_fits(&compressed(5)), Ok(Some(5)));
        assert_eq!(compressed_text_fits(b"junk"), Ok(None), "junk is no error");
        assert!(compressed_text_fits(&compressed(MOST_IN_ONE + 70_000)).is_err());
    }

    #[test]
    fn international_texts_are_measured() {
        let rows: &[(&str, &[u8], usize)] = &[
            ("plain", b"key\0\0\0en\0name\0text", 4),
            ("no name", b"key", 0),
            ("no text", b"key\0\0\0en", 0),
            ("unknown method", b"key\0\x01\x09en\0name\0text", 0),
        ];
        for (name, body, expected) in rows {
            assert_eq!(international_text(body), Ok(*expected), "{name}");
        }
        let mut body = b"key\0\x01\0en\0name\0".to_vec();
        body.extend(compressed(9));
        assert_eq!(international_text(&body), Ok(9), "compressed");
    }

    #[test]
    fn texts_share_a_budget() {
        let mut budget = TextBudget::default();
        assert!(budget.spend(MOST_IN_ALL).is_ok());
        assert!(budget.spend(1).is_err());
    }
}
