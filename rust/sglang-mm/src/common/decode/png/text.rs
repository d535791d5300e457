//! Limits on the compressed texts and profiles of a PNG file, which could be decompression bombs.

use std::borrow::Cow;

use flate2::{Decompress, FlushDecompress, Status};

use super::super::error::DecodeError;
use super::error::corrupt;

/// The largest size in bytes that one compressed text may inflate to.
const MAX_TEXT_LEN: usize = 1 << 20;

/// The largest size in bytes of all texts of a file together.
const MAX_TOTAL_TEXT_LEN: usize = 64 * MAX_TEXT_LEN;

/// Counts the bytes of text in a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextBudget {
    spent: usize,
}

impl TextBudget {
    pub(super) fn spend(&mut self, length: usize) -> Result<(), DecodeError> {
        self.spent = self.spent.saturating_add(length);
        if self.spent > MAX_TOTAL_TEXT_LEN {
            return Err(corrupt("its texts are too long in total"));
        }
        Ok(())
    }
}

/// The inflated length of a compressed text. `None` if the compression is invalid, which is not an error.
pub(super) fn inflated_len(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    // Small, because a file may hold millions of tiny texts.
    let mut scratch = [0; 4096];
    let mut inflater = Decompress::new(true);
    loop {
        let length = inflater.total_out() as usize;
        let room = scratch.len().min(MAX_TEXT_LEN - length);
        let unread = &bytes[inflater.total_in() as usize..];
        match inflater.decompress(unread, &mut scratch[..room], FlushDecompress::None) {
            Err(_) => return Ok(None),
            Ok(Status::StreamEnd) => return Ok(Some(inflater.total_out() as usize)),
            Ok(_) if inflater.total_out() as usize > length => {}
            Ok(_) if (inflater.total_in() as usize) < bytes.len() => {
                return Err(corrupt("a compressed text that inflates to too many bytes"));
            }
            Ok(_) => return Ok(Some(length)),
        }
    }
}

/// The inflated text. `None` if the compression is invalid.
pub(super) fn inflated(bytes: &[u8]) -> Option<Vec<u8>> {
    let length = inflated_len(bytes).ok()??;
    let mut text = vec![0; length];
    let mut inflater = Decompress::new(true);
    inflater
        .decompress(bytes, &mut text, FlushDecompress::None)
        .ok()?;
    Some(text)
}

/// The body of an `iTXt` chunk after its key.
pub(super) struct InternationalText<'a> {
    compressed: bool,
    method: u8,
    pub(super) language: &'a [u8],
    /// The translated key.
    pub(super) name: &'a [u8],
    stored: &'a [u8],
}

impl<'a> InternationalText<'a> {
    /// `None` if the body is malformed, which is not an error.
    pub(super) fn parse(after_key: &'a [u8]) -> Option<Self> {
        let (&[compressed, method], rest) = after_key.split_first_chunk()?;
        let mut parts = rest.splitn(3, |&byte| byte == 0);
        Some(Self {
            compressed: compressed != 0,
            method,
            language: parts.next()?,
            name: parts.next()?,
            stored: parts.next()?,
        })
    }

    /// The length of the inflated text. 0 if it cannot be inflated.
    pub(super) fn length(&self) -> Result<usize, DecodeError> {
        match (self.compressed, self.method) {
            (false, _) => Ok(self.stored.len()),
            (true, 0) => Ok(inflated_len(self.stored)?.unwrap_or(0)),
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
    fn a_text_may_inflate_to_a_mebibyte() {
        assert_eq!(inflated_len(&compressed(5)), Ok(Some(5)));
        assert_eq!(inflated_len(b"junk"), Ok(None), "junk is not an error");
        assert!(inflated_len(&compressed(MAX_TEXT_LEN + 70_000)).is_err());
    }

    #[test]
    fn international_texts_are_parsed_and_inflated() {
        type Row<'a> = (&'a str, &'a [u8], Option<(usize, Option<&'a [u8]>)>);
        let squeezed = [b"\x01\0en\0name\0".as_slice(), &compressed(9)].concat();
        let rows: &[Row<'_>] = &[
            ("plain", b"\0\0en\0name\0te\0xt", Some((5, Some(b"te\0xt")))),
            ("compressed", &squeezed, Some((9, Some(b"aaaaaaaaa")))),
            ("empty", b"", None),
            ("no text", b"\0\0en", None),
            ("unknown method", b"\x01\x09en\0name\0text", Some((0, None))),
            ("junk", b"\x01\0en\0name\0junk", Some((0, None))),
        ];
        for (name, body, expected) in rows {
            let parsed = InternationalText::parse(body);
            let found = parsed.map(|parsed| (parsed.length().unwrap(), parsed.text()));
            let found = found
                .as_ref()
                .map(|(length, text)| (*length, text.as_deref()));
            assert_eq!(found, *expected, "{name}");
        }
    }

    #[test]
    fn all_texts_share_one_limit() {
        let mut budget = TextBudget::default();
        assert!(budget.spend(MAX_TOTAL_TEXT_LEN).is_ok());
        assert!(budget.spend(1).is_err());
    }
}
