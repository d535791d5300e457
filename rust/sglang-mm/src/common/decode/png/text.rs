//! Texts and profiles beside the pixels: not kept, but they may not be bombs.

use std::borrow::Cow;

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

/// The text that was compressed to `bytes`; none if it is not compressed properly.
pub(super) fn inflated(bytes: &[u8]) -> Option<Vec<u8>> {
    let length = compressed_text_fits(bytes).ok()??;
    let mut text = vec![0; length];
    let mut inflater = Decompress::new(true);
    inflater
        .decompress(bytes, &mut text, FlushDecompress::None)
        .ok()?;
    Some(text)
}

/// What stands behind the key of an international text.
pub(super) struct International<'a> {
    compressed: bool,
    method: u8,
    pub(super) language: &'a [u8],
    /// The key, translated.
    pub(super) name: &'a [u8],
    stored: &'a [u8],
}

impl<'a> International<'a> {
    /// None if it is malformed, which is no error.
    pub(super) fn parse(behind_key: &'a [u8]) -> Option<Self> {
        let (&[compressed, method], rest) = behind_key.split_first_chunk()?;
        let mut parts = rest.splitn(3, |&byte| byte == 0);
        Some(Self {
            compressed: compressed != 0,
            method,
            language: parts.next()?,
            name: parts.next()?,
            stored: parts.next()?,
        })
    }

    /// Its length once inflated; 0 if it cannot be.
    pub(super) fn length(&self) -> Result<usize, DecodeError> {
        match (self.compressed, self.method) {
            (false, _) => Ok(self.stored.len()),
            (true, 0) => Ok(compressed_text_fits(self.stored)?.unwrap_or(0)),
            _ => Ok(0),
        }
    }

    pub(super) fn text(&self) -> Option<Cow<'a, [u8]>> {
        match (self.compressed, self.method) {
            (false, _) => Some(self.stored.into()),
            (true, 0) => inflated(self.stored).map(Cow::from),
            _ => None,
        }
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
        type Row<'a> = (&'a str, &'a [u8], Option<(usize, Option<&'a [u8]>)>);
        let squeezed = [b"\x01\0en\0name\0".as_slice(), &compressed(9)].concat();
        let rows: &[Row<'_>] = &[
            ("plain", b"\0\0en\0name\0te\0xt", Some((5, Some(b"te\0xt")))),
            ("compressed", &squeezed, Some((9, Some(b"aaaaaaaaa")))),
            ("nothing", b"", None),
            ("no text", b"\0\0en", None),
            ("unknown method", b"\x01\x09en\0name\0text", Some((0, None))),
            ("junk", b"\x01\0en\0name\0junk", Some((0, None))),
        ];
        for (name, body, expected) in rows {
            let parsed = International::parse(body);
            let found = parsed.map(|parsed| (parsed.length().unwrap(), parsed.text()));
            let found = found
                .as_ref()
                .map(|(length, text)| (*length, text.as_deref()));
            assert_eq!(found, *expected, "{name}");
        }
    }

    #[test]
    fn texts_share_a_budget() {
        let mut budget = TextBudget::default();
        assert!(budget.spend(MOST_IN_ALL).is_ok());
        assert!(budget.spend(1).is_err());
    }
}
