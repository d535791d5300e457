//! The chunks of a PNG file that may hold its orientation, stored as Pillow stores them: by key, and
//! the last chunk of a key wins. The kind of chunk decides whether a value is bytes or a text.
//!
//! Invariant: a text is inflated only if its key is one of the four in `KEYS`.

use std::borrow::Cow;

use super::super::error::DecodeError;
use super::super::exif::{self, Unreadable, tag_of_exif, tag_of_xmp};
use super::super::orientation::Orientation;
use super::error::corrupt;
use super::text::{InternationalText, inflated};

const KEYS: [&[u8]; 4] = [
    b"exif",
    b"Raw profile type exif",
    b"XML:com.adobe.xmp",
    b"xmp",
];

/// The values of the four keys.
#[derive(Debug, Default)]
pub(super) struct Metadata<'a> {
    exif: Option<Entry<'a>>,
    /// EXIF data in hexadecimal digits, after three header lines.
    raw_profile: Option<Cow<'a, [u8]>>,
    adobe_xmp: Option<Cow<'a, [u8]>>,
    xmp: Option<Entry<'a>>,
}

#[derive(Debug)]
enum Entry<'a> {
    Bytes(Cow<'a, [u8]>),
    /// Pillow fails on a text where it expects bytes.
    Text {
        empty: bool,
    },
}

impl<'a> Metadata<'a> {
    /// Handles an `eXIf` chunk. Like Pillow it adds the prefix that EXIF data has elsewhere.
    pub(super) fn read_exif(&mut self, body: &[u8]) {
        self.exif = Some(Entry::Bytes([exif::PREFIX, body].concat().into()));
    }

    /// Handles a text chunk, if it has one of the keys.
    pub(super) fn read_text(&mut self, kind: [u8; 4], key: &[u8], value: &'a [u8]) {
        if !KEYS.contains(&key) {
            return;
        }
        match &kind {
            b"tEXt" if key == b"exif" => self.exif = Some(Entry::Bytes(value.into())),
            b"tEXt" => self.keep(key, value.into()),
            b"zTXt" => {
                let text = value.split_first().and_then(|(_, text)| inflated(text));
                self.keep(key, text.unwrap_or_default().into());
            }
            b"iTXt" => self.read_international(key, value),
            _ => {}
        }
    }

    fn read_international(&mut self, key: &[u8], value: &'a [u8]) {
        let Some(international) = InternationalText::parse(value) else {
            return;
        };
        let Some(text) = international.text() else {
            return;
        };
        let names = [international.language, international.name];
        let readable =
            names.iter().all(|name| str::from_utf8(name).is_ok()) && str::from_utf8(&text).is_ok();
        if key == b"XML:com.adobe.xmp" {
            self.xmp = Some(Entry::Bytes(text.clone()));
        }
        if readable {
            self.keep(key, text);
        }
    }

    fn keep(&mut self, key: &[u8], text: Cow<'a, [u8]>) {
        let empty = text.is_empty();
        match key {
            b"exif" => self.exif = Some(Entry::Text { empty }),
            b"xmp" => self.xmp = Some(Entry::Text { empty }),
            b"XML:com.adobe.xmp" => self.adobe_xmp = Some(text),
            _ => self.raw_profile = Some(text),
        }
    }

    pub(super) fn orientation(&self) -> Result<Orientation, DecodeError> {
        self.tag()
            .map(Orientation::from_tag)
            .map_err(|Unreadable| corrupt("EXIF or XMP data that cannot be read"))
    }

    fn tag(&self) -> Result<Option<f64>, Unreadable> {
        let exif = match (&self.exif, &self.raw_profile) {
            (Some(Entry::Bytes(exif)), _) => tag_of_exif(exif)?,
            (Some(Entry::Text { .. }), _) => return Err(Unreadable),
            (None, Some(profile)) => tag_of_exif(&profile_bytes(profile).ok_or(Unreadable)?)?,
            (None, None) => None,
        };
        let adobe_xmp = self.adobe_xmp.as_deref().filter(|xmp| !xmp.is_empty());
        match (exif, adobe_xmp, &self.xmp) {
            (Some(tag), ..) => Ok(Some(tag)),
            (None, Some(xmp), _) => Ok(tag_of_xmp(xmp)),
            (None, None, Some(Entry::Bytes(xmp))) => Ok(tag_of_xmp(xmp)),
            (None, None, Some(Entry::Text { empty: false })) => Err(Unreadable),
            (None, None, Some(Entry::Text { empty: true }) | None) => Ok(None),
        }
    }
}

/// The bytes of a raw profile: two hexadecimal digits each, with white space between them.
fn profile_bytes(profile: &[u8]) -> Option<Vec<u8>> {
    let lines = profile.split(|&byte| byte == b'\n').skip(3);
    let digits = lines.collect::<Vec<_>>().concat();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut rest = digits.trim_ascii_start();
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    while let Some((&[high, low], next)) = rest.split_first_chunk() {
        bytes.push((digit(high)? << 4 | digit(low)?) as u8);
        rest = next.trim_ascii_start();
    }
    rest.is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIX: &[u8] = b"II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    const XMP: &[u8] = b"XML:com.adobe.xmp";

    /// Each row was compared with the result of Pillow 13.0.0.
    #[test]
    fn key_and_chunk_decide_how_a_value_is_read() {
        type Text<'a> = ([u8; 4], &'a [u8], &'a [u8]);
        type Row<'a> = (&'a str, &'a [Text<'a>], Result<Option<f64>, Unreadable>);
        let profile = b"\nexif\n 26\n49492a0008000000 01001201\n0300010000000600\t000000000000\n";
        let six = b"tiff:Orientation=\"6\"".as_slice();
        let international = [b"\0\0\0\0", six].concat();
        let unreadable = [b"\0\0\0\0", six, b"\xff"].concat();
        #[rustfmt::skip]
        let rows: &[Row<'_>] = &[
            ("no chunks",                     &[], Ok(None)),
            ("another key",                   &[(*b"tEXt", b"Comment", six)], Ok(None)),
            ("EXIF as text",                  &[(*b"tEXt", b"exif", SIX)], Ok(Some(6.0))),
            ("EXIF as compressed text",       &[(*b"zTXt", b"exif", b"\0junk")], Err(Unreadable)),
            ("a profile",                     &[(*b"tEXt", b"Raw profile type exif", profile)], Ok(Some(6.0))),
            ("a profile without digits",      &[(*b"tEXt", b"Raw profile type exif", b"\n\n\nxy")], Err(Unreadable)),
            ("a profile of half a byte",      &[(*b"tEXt", b"Raw profile type exif", b"\n\n\n4")], Err(Unreadable)),
            ("EXIF before a profile",
                &[(*b"tEXt", b"exif", b""), (*b"tEXt", b"Raw profile type exif", profile)], Ok(None)),
            ("XMP",                           &[(*b"iTXt", XMP, &international)], Ok(Some(6.0))),
            ("XMP that is not UTF-8",         &[(*b"iTXt", XMP, &unreadable)], Ok(Some(6.0))),
            ("XMP as text",                   &[(*b"tEXt", XMP, six)], Ok(Some(6.0))),
            ("XMP under its short key",       &[(*b"tEXt", b"xmp", six)], Err(Unreadable)),
            ("an empty text, short key",      &[(*b"tEXt", b"xmp", b"")], Ok(None)),
            ("the last chunk of a key wins",  &[(*b"iTXt", XMP, &international), (*b"tEXt", XMP, b"none")], Ok(None)),
            ("EXIF before XMP",               &[(*b"tEXt", b"xmp", six), (*b"tEXt", b"exif", SIX)], Ok(Some(6.0))),
        ];
        for (name, texts, expected) in rows {
            let mut metadata = Metadata::default();
            for (kind, key, value) in *texts {
                metadata.read_text(*kind, key, value);
            }
            assert_eq!(metadata.tag(), *expected, "{name}");
        }
    }

    #[test]
    fn an_exif_chunk_may_have_one_prefix_of_its_own() {
        let tag = |body: &[u8]| {
            let mut metadata = Metadata::default();
            metadata.read_exif(body);
            metadata.tag()
        };
        let prefixed = |count| [&exif::PREFIX.repeat(count), SIX].concat();
        assert_eq!(tag(SIX), Ok(Some(6.0)));
        assert_eq!(tag(&prefixed(1)), Ok(Some(6.0)));
        assert_eq!(tag(&prefixed(2)), Err(Unreadable));
    }
}
