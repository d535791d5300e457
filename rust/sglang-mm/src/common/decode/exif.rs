//! Reads the orientation from EXIF and XMP data, as Pillow reads it.
//!
//! EXIF is a TIFF file without pixels: a header, then a directory of tags. Only one tag is needed,
//! but the tags before it are parsed as Pillow parses them, because damage in them decides whether
//! that tag is reached. XMP is searched for one attribute, and is used only if EXIF has no such tag.
//!
//! Invariant: no tag's value is copied, so the length that it declares costs nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::cursor::{Cursor, u16_be, u16_le, u32_be, u32_le};
use super::orientation::Orientation;

/// The EXIF data has no valid TIFF header, so nothing can be read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// The metadata of a file that may hold an orientation.
#[derive(Debug, Default)]
pub(super) struct Metadata<'a> {
    /// A TIFF block, after up to two [`PREFIX`]es.
    pub(super) exif: Option<Cow<'a, [u8]>>,
    /// An XML document.
    pub(super) xmp: Option<Cow<'a, [u8]>>,
}

impl Metadata<'_> {
    pub(super) fn orientation(&self) -> Result<Orientation, Unreadable> {
        let exif = self.exif.as_deref().map_or(Ok(None), tag_of_exif)?;
        let tag = exif.or_else(|| tag_of_xmp(self.xmp.as_deref()?));
        Ok(Orientation::from_tag(tag))
    }
}

/// Comes before EXIF data in most files. Some writers leave it out, and some write it twice.
pub(super) const PREFIX: &[u8] = b"Exif\0\0";

/// The value of the orientation tag, if there is one. A value that is not a number gives NaN.
pub(super) fn tag_of_exif(exif: &[u8]) -> Result<Option<f64>, Unreadable> {
    let once = exif.strip_prefix(PREFIX).unwrap_or(exif);
    let block = once.strip_prefix(PREFIX).unwrap_or(once);
    if block.is_empty() {
        return Ok(None);
    }
    Ok(Directory::parse(block)?.orientation())
}

/// The digit that follows `tiff:Orientation`, as an attribute or as an element.
pub(super) fn tag_of_xmp(xmp: &[u8]) -> Option<f64> {
    const NAME: &[u8] = b"tiff:Orientation";
    (0..xmp.len()).find_map(|at| match xmp[at..].strip_prefix(NAME)? {
        [b'=', b'"', digit @ b'0'..=b'9', ..] | [b'>', digit @ b'0'..=b'9', ..] => {
            Some(f64::from(digit - b'0'))
        }
        _ => None,
    })
}

/// A TIFF block and the offset of its first directory.
struct Directory<'a> {
    block: &'a [u8],
    little_endian: bool,
    start: usize,
}

impl<'a> Directory<'a> {
    fn parse(block: &'a [u8]) -> Result<Self, Unreadable> {
        let little_endian = match block.get(..4) {
            Some(b"II\x2a\0" | b"II\0\x2a") => true,
            Some(b"MM\0\x2a" | b"MM\x2a\0" | b"MM\0\x2b") => false,
            _ => return Err(Unreadable),
        };
        let mut directory = Self {
            block,
            little_endian,
            start: 0,
        };
        directory.start = directory.u32_in(block, 4).ok_or(Unreadable)? as usize;
        Ok(directory)
    }

    /// The value of the first valid orientation tag.
    fn orientation(&self) -> Option<f64> {
        const ORIENTATION: u16 = 274;
        let mut cursor = Cursor::at(self.block, self.start);
        let count = self.u16_in(cursor.take(2)?, 0)?;
        let mut claimed = 0;
        let mut seen = BTreeSet::new();
        for _ in 0..count {
            let entry = cursor.take(12)?;
            let (tag, kind) = (self.u16_in(entry, 0)?, self.u16_in(entry, 2)?);
            let Some(unit) = type_size(kind).filter(|_| !seen.contains(&tag)) else {
                continue;
            };
            let size = u64::from(self.u32_in(entry, 4)?) * unit;
            let value = if size <= 4 {
                &entry[8..8 + size as usize]
            } else {
                // All values together cannot be longer than the block that contains them.
                claimed += size;
                if claimed > self.block.len() as u64 {
                    continue;
                }
                let at = self.u32_in(entry, 8)? as usize;
                // A truncated value ends the directory.
                Cursor::at(self.block, at).take(size as usize)?
            };
            if value.is_empty() {
                continue;
            }
            if tag == ORIENTATION {
                return Some(self.number(kind, value));
            }
            seen.insert(tag);
        }
        None
    }

    /// The first number in a value.
    fn number(&self, kind: u16, value: &[u8]) -> f64 {
        let number = match kind {
            3 => self.u16_in(value, 0).map(f64::from),
            4 | 13 => self.u32_in(value, 0).map(f64::from),
            5 => self.ratio(value, f64::from),
            6 => value.first().map(|&byte| f64::from(byte as i8)),
            8 => self.u16_in(value, 0).map(|bits| f64::from(bits as i16)),
            9 => self.u32_in(value, 0).map(|bits| f64::from(bits as i32)),
            10 => self.ratio(value, |bits| f64::from(bits as i32)),
            11 => self
                .u32_in(value, 0)
                .map(|bits| f32::from_bits(bits).into()),
            12 => self.u64_in(value).map(f64::from_bits),
            16 => self.u64_in(value).map(|bits| bits as f64),
            // Bytes and texts are not numbers, even if they contain a digit.
            _ => None,
        };
        number.unwrap_or(f64::NAN)
    }

    fn ratio(&self, value: &[u8], number: impl Fn(u32) -> f64) -> Option<f64> {
        Some(number(self.u32_in(value, 0)?) / number(self.u32_in(value, 4)?))
    }

    fn u16_in(&self, bytes: &[u8], at: usize) -> Option<u16> {
        if self.little_endian {
            u16_le(bytes, at)
        } else {
            u16_be(bytes, at)
        }
    }

    fn u32_in(&self, bytes: &[u8], at: usize) -> Option<u32> {
        if self.little_endian {
            u32_le(bytes, at)
        } else {
            u32_be(bytes, at)
        }
    }

    fn u64_in(&self, bytes: &[u8]) -> Option<u64> {
        let bytes = *bytes.first_chunk()?;
        Some(if self.little_endian {
            u64::from_le_bytes(bytes)
        } else {
            u64::from_be_bytes(bytes)
        })
    }
}

/// Bytes per element of a TIFF type.
fn type_size(kind: u16) -> Option<u64> {
    match kind {
        1 | 2 | 6 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 9 | 11 | 13 => Some(4),
        5 | 10 | 12 | 16 => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A little-endian block: each entry is tag, type, count, and four bytes of value or offset.
    /// `values` follows the directory.
    fn block(entries: &[(u16, u16, u32, [u8; 4])], values: &[u8]) -> Vec<u8> {
        let mut block = b"II\x2a\0\x08\0\0\0".to_vec();
        block.extend((entries.len() as u16).to_le_bytes());
        for (tag, kind, count, value) in entries {
            block.extend(tag.to_le_bytes());
            block.extend(kind.to_le_bytes());
            block.extend(count.to_le_bytes());
            block.extend(value);
        }
        block.extend([0; 4]);
        block.extend(values);
        block
    }

    const SIX: (u16, u16, u32, [u8; 4]) = (274, 3, 1, [6, 0, 0, 0]);
    const MAKER: (u16, u16, u32, [u8; 4]) = (271, 2, 4, *b"abc\0");

    type Row<'a> = (&'a str, Vec<u8>, Result<Option<f64>, Unreadable>);

    /// Each row was compared with the result of Pillow 13.0.0.
    #[track_caller]
    fn check(rows: &[Row<'_>]) {
        for (name, exif, expected) in rows {
            // Compared as text, because NaN does not equal itself.
            let found = format!("{:?}", tag_of_exif(exif));
            assert_eq!(found, format!("{expected:?}"), "{name}");
        }
    }

    #[test]
    fn damage_before_the_tag_decides_whether_the_tag_is_found() {
        let prefixed = |count| [&PREFIX.repeat(count), block(&[SIX], b"").as_slice()].concat();
        let text = |length, at| (271, 2, length, [at, 0, 0, 0]);
        #[rustfmt::skip]
        check(&[
            ("no data",                    vec![],                                         Ok(None)),
            ("after another tag",          block(&[MAKER, SIX], b""),                      Ok(Some(6.0))),
            ("one prefix",                 prefixed(1),                                    Ok(Some(6.0))),
            ("two prefixes",               prefixed(2),                                    Ok(Some(6.0))),
            ("three prefixes",             prefixed(3),                                    Err(Unreadable)),
            ("an invalid header",         b"IM\x2a\0\x08\0\0\0".to_vec(),                 Err(Unreadable)),
            ("a truncated header",         b"II\x2a\0\x08\0\0".to_vec(),                   Err(Unreadable)),
            ("64-bit TIFF",                b"II\x2b\0\x08\0\0\0".to_vec(),                 Err(Unreadable)),
            ("a directory beyond the end", b"II\x2a\0\xff\xff\xff\xff".to_vec(),           Ok(None)),
            ("the first tag wins",         block(&[SIX, (274, 3, 1, [3, 0, 0, 0])], b""),  Ok(Some(6.0))),
            ("after a tag of no values",    block(&[(274, 3, 0, [3; 4]), SIX], b""),        Ok(Some(6.0))),
            ("after an unknown type",      block(&[(274, 99, 1, [3; 4]), SIX], b""),       Ok(Some(6.0))),
            ("after a truncated value", block(&[text(30, 20), SIX], b""),               Ok(None)),
            ("after a value too long",     block(&[text(u32::MAX, 0), SIX], b""),          Ok(Some(6.0))),
            ("after a value used twice",    block(&[text(30, 0), text(30, 0), SIX], b""),   Ok(Some(6.0))),
            ("truncated in its entry",     block(&[SIX], b"")[..21].to_vec(),              Ok(None)),
            ("truncated after its entry",    block(&[SIX], b"")[..22].to_vec(),              Ok(Some(6.0))),
        ]);
        let big_endian = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0";
        check(&[("big-endian", big_endian.to_vec(), Ok(Some(6.0)))]);
    }

    #[test]
    fn every_numeric_type_is_read() {
        let inline = |kind, count, value| block(&[(274, kind, count, value)], b"");
        // The value follows the directory, which takes 26 bytes.
        let offset = |kind, value: &[u8]| block(&[(274, kind, 1, [26, 0, 0, 0])], value);
        #[rustfmt::skip]
        check(&[
            ("short",            inline(3, 1, [6, 0, 9, 9]),                     Ok(Some(6.0))),
            ("two shorts",       inline(3, 2, [6, 0, 3, 0]),                     Ok(Some(6.0))),
            ("long",             inline(4, 1, [6, 0, 0, 0]),                     Ok(Some(6.0))),
            ("directory offset", inline(13, 1, [6, 0, 0, 0]),                    Ok(Some(6.0))),
            ("signed byte",      inline(6, 1, [0xfa, 0, 0, 0]),                  Ok(Some(-6.0))),
            ("signed short",     inline(8, 1, [0xfa, 0xff, 0, 0]),               Ok(Some(-6.0))),
            ("signed long",      inline(9, 1, [0xfa, 0xff, 0xff, 0xff]),         Ok(Some(-6.0))),
            ("float",            inline(11, 1, 6f32.to_le_bytes()),              Ok(Some(6.0))),
            ("ratio",            offset(5, &[12, 0, 0, 0, 2, 0, 0, 0]),           Ok(Some(6.0))),
            ("zero by zero",     offset(5, &[0; 8]),                              Ok(Some(f64::NAN))),
            ("signed ratio",     offset(10, &[0xfa, 0xff, 0xff, 0xff, 1, 0, 0, 0]), Ok(Some(-6.0))),
            ("double",           offset(12, &6f64.to_le_bytes()),                 Ok(Some(6.0))),
            ("64 bits",          offset(16, &6u64.to_le_bytes()),                 Ok(Some(6.0))),
            ("byte",             inline(1, 1, [6, 0, 0, 0]),                     Ok(Some(f64::NAN))),
            ("text",             inline(2, 2, *b"6\0\0\0"),                      Ok(Some(f64::NAN))),
        ]);
    }

    #[test]
    fn xmp_is_used_if_exif_has_no_orientation() {
        let rows: &[(&str, &[u8], Option<f64>)] = &[
            ("attribute", b"<x tiff:Orientation=\"6\"/>", Some(6.0)),
            (
                "element",
                b"<tiff:Orientation>8</tiff:Orientation>",
                Some(8.0),
            ),
            (
                "the first match that is valid",
                b"tiff:Orientation='3' tiff:Orientation>5",
                Some(5.0),
            ),
            ("no digit", b"tiff:Orientation=\"x\"", None),
            ("truncated", b"tiff:Orientation=\"", None),
            ("empty", b"", None),
        ];
        for (name, xmp, expected) in rows {
            assert_eq!(tag_of_xmp(xmp), *expected, "{name}");
            let without_tag = Metadata {
                exif: Some(block(&[MAKER], b"").into()),
                xmp: Some((*xmp).into()),
            };
            let expected = Orientation::from_tag(*expected);
            assert_eq!(without_tag.orientation(), Ok(expected), "{name}");
        }
        let both = Metadata {
            exif: Some(block(&[SIX], b"").into()),
            xmp: Some(b"tiff:Orientation=\"3\"".into()),
        };
        assert_eq!(both.orientation(), Ok(Orientation::from_tag(Some(6.0))));
    }
}
