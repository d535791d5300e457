//! Parses the markers of a JPEG file up to its first scan, for the size and the components.
//!
//! Only the structure is checked: which segments there are, that they are complete, and that tables
//! are long enough. libjpeg checks the coded data.

use std::borrow::Cow;

use super::super::cursor::{Cursor, u16_be};
use super::super::error::DecodeError;
use super::super::exif::{self, Metadata, Unreadable};
use super::super::format::Format;
use super::super::orientation::Orientation;
use super::super::pixels::DecodeLimits;
use crate::common::Size;

/// The colour model of the components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Model {
    /// One component, or three of any colour space that libjpeg recognises.
    Rgb,
    /// Four components.
    Cmyk,
}

/// A file parsed up to its first scan.
#[derive(Debug)]
pub(in super::super) struct Header<'a> {
    size: Size,
    pub(super) model: Model,
    metadata: Metadata<'a>,
    /// A JFIF segment gives the pixel density.
    has_density: bool,
}

/// The content of a frame segment.
#[derive(Clone, Copy)]
struct Frame {
    width: u16,
    height: u16,
    model: Model,
}

impl<'a> Header<'a> {
    pub(in super::super) fn read(
        bytes: &'a [u8],
        limits: DecodeLimits,
    ) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::at(bytes, 2);
        let mut frame = None;
        let mut metadata = Metadata::default();
        let mut has_density = false;
        loop {
            match next_marker(&mut cursor)? {
                0xda => break,
                0xc0..=0xc2 | 0xc9 | 0xca => {
                    frame = Some(Frame::parse(segment(&mut cursor)?)?);
                }
                0xc3 | 0xcb => return Err(unsupported("lossless coding")),
                0xc5..=0xc7 | 0xcd..=0xcf | 0xde => {
                    return Err(unsupported("hierarchical coding"));
                }
                0xdb => check_quantization(segment(&mut cursor)?)?,
                0xe0 => {
                    let body = segment(&mut cursor)?;
                    check_application(body, b"JFIF")?;
                    has_density |= gives_density(body);
                }
                0xe1 => read_metadata(segment(&mut cursor)?, &mut metadata),
                0xee => check_application(segment(&mut cursor)?, b"Adobe")?,
                0xc4 | 0xcc | 0xdc | 0xdd | 0xdf | 0xe2..=0xef | 0xfe => {
                    segment(&mut cursor)?;
                }
                // Markers without a segment: restart, start, end and reserved markers.
                0xc8 | 0xd0..=0xd9 | 0xf0..=0xfd => {}
                _ => return Err(corrupt("a marker that does not exist")),
            }
        }
        segment(&mut cursor)?;
        let frame = frame.ok_or_else(|| corrupt("a scan before any frame"))?;
        let (width, height) = (frame.width.into(), frame.height.into());
        Ok(Self {
            size: Size::checked(Format::Jpeg, width, height, limits)?,
            model: frame.model,
            metadata,
            has_density,
        })
    }

    pub(in super::super) fn size(&self) -> Size {
        self.size
    }

    /// EXIF data that cannot be read is an error only if JFIF gives a density. Without one, Pillow reads
    /// the density from the EXIF data while it opens the file, and ignores errors there.
    pub(in super::super) fn orientation(&self) -> Result<Orientation, DecodeError> {
        match self.metadata.orientation() {
            Ok(orientation) => Ok(orientation),
            Err(Unreadable) if self.has_density => Err(corrupt("EXIF data without a TIFF header")),
            Err(Unreadable) => Ok(Orientation::default()),
        }
    }
}

/// Keeps EXIF and XMP data. EXIF data may be split over several segments.
fn read_metadata<'a>(body: &'a [u8], metadata: &mut Metadata<'a>) {
    const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
    if let Some(more) = body.strip_prefix(exif::PREFIX) {
        match &mut metadata.exif {
            Some(exif) => exif.to_mut().extend_from_slice(more),
            None => metadata.exif = Some(body.into()),
        }
    } else if let Some(xmp) = body.strip_prefix(XMP) {
        metadata.xmp = Some(xmp.into());
    }
}

/// Whether a JFIF segment gives a density in dots per inch or per centimetre.
fn gives_density(body: &[u8]) -> bool {
    body.starts_with(b"JFIF") && body.len() >= 12 && matches!(body[7], 1 | 2)
}

/// The code of the next marker. Junk before a marker is skipped.
fn next_marker(cursor: &mut Cursor<'_>) -> Result<u8, DecodeError> {
    let mut after_prefix = false;
    while let Some(byte) = cursor.byte() {
        match (after_prefix, byte) {
            (_, 0xff) => after_prefix = true,
            (true, 0) | (false, _) => after_prefix = false,
            (true, marker) => return Ok(marker),
        }
    }
    Err(truncated())
}

/// The body of the segment at the cursor.
fn segment<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], DecodeError> {
    let length = cursor
        .array()
        .map(u16::from_be_bytes)
        .ok_or_else(truncated)?;
    cursor
        .take(usize::from(length).saturating_sub(2))
        .ok_or_else(truncated)
}

impl Frame {
    fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        let (&[bits, _, _, _, _, components], _) = body
            .split_first_chunk()
            .ok_or_else(|| corrupt("a frame segment that is too short"))?;
        if bits != 8 {
            return Err(DecodeError::UnsupportedColor {
                format: Format::Jpeg,
                bits,
            });
        }
        let model = match components {
            1 | 3 => Model::Rgb,
            4 => Model::Cmyk,
            _ => {
                return Err(unsupported(format!("{components} components")));
            }
        };
        let number = |at| u16::from_be_bytes([body[at], body[at + 1]]);
        Ok(Self {
            width: number(3),
            height: number(1),
            model,
        })
    }
}

/// Checks that quantization tables are complete: 64 numbers of one or two bytes after each kind byte.
fn check_quantization(mut body: &[u8]) -> Result<(), DecodeError> {
    while let Some((&kind, rest)) = body.split_first() {
        let length = if kind >> 4 == 0 { 64 } else { 128 };
        body = rest
            .get(length..)
            .ok_or_else(|| corrupt("a quantization table that is too short"))?;
    }
    Ok(())
}

/// Checks that an application segment called `name` is long enough for its version number.
fn check_application(body: &[u8], name: &[u8]) -> Result<(), DecodeError> {
    if body.starts_with(name) && u16_be(body, 5).is_none() {
        return Err(corrupt("an application segment that is too short"));
    }
    Ok(())
}

fn corrupt(problem: &'static str) -> DecodeError {
    DecodeError::corrupt(Format::Jpeg, problem)
}

fn unsupported(feature: impl Into<Cow<'static, str>>) -> DecodeError {
    DecodeError::unsupported(Format::Jpeg, feature)
}

fn truncated() -> DecodeError {
    DecodeError::truncated(Format::Jpeg, "the headers")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a JFIF density, EXIF data that cannot be read is ignored.
    #[test]
    fn orientation_is_read_from_the_segments() {
        type Row<'a> = (&'a str, &'a [&'a [u8]], Option<f64>);
        const REST: &[u8] =
            b"\xff\xc0\0\x0b\x08\0\x03\0\x05\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0\x3f\0";
        const START: &[u8] = b"\xff\xe1\0\x16Exif\0\0II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0";
        const END: &[u8] = b"\xff\xe1\0\x10Exif\0\0\x01\0\0\0\x06\0\0\0";
        const BROKEN: &[u8] = b"\xff\xe1\0\x0cExif\0\0junk";
        const XMP: &[u8] = b"\xff\xe1\0\x33http://ns.adobe.com/xap/1.0/\0tiff:Orientation=\"3\"";
        const DENSE: &[u8] = b"\xff\xe0\0\x10JFIF\0\x01\x01\x01\0\x48\0\x48\0\0";
        let rows: &[Row<'_>] = &[
            ("none", &[], Some(1.0)),
            ("EXIF in two segments", &[START, END], Some(6.0)),
            ("XMP", &[XMP], Some(3.0)),
            ("EXIF before XMP", &[XMP, START, END], Some(6.0)),
            ("invalid EXIF", &[BROKEN], Some(1.0)),
            ("invalid EXIF, and XMP", &[BROKEN, XMP], Some(1.0)),
            ("invalid EXIF, with a density", &[DENSE, BROKEN], None),
        ];
        for (name, parts, tag) in rows {
            let file = [b"\xff\xd8", parts.concat().as_slice(), REST].concat();
            let header = Header::read(&file, DecodeLimits::default()).unwrap();
            let expected = tag.map(|tag| Orientation::from_tag(Some(tag)));
            assert_eq!(header.orientation().ok(), expected, "{name}");
        }
    }

    #[test]
    fn markers_are_read_up_to_the_scan() {
        type Row<'a> = (&'a str, &'a [&'a [u8]], Option<(usize, usize)>);
        const FRAME: &[u8] = b"\xff\xc0\0\x0b\x08\0\x03\0\x05\x01\x01\x11\0";
        const LARGER: &[u8] = b"\xff\xc2\0\x0b\x08\0\x04\0\x06\x01\x01\x11\0";
        const SCAN: &[u8] = b"\xff\xda\0\x08\x01\x01\0\0\x3f\0";
        #[rustfmt::skip]
        let rows: &[Row<'_>] = &[
            ("a frame and a scan", &[FRAME, SCAN], Some((5, 3))),
            ("junk and padding between", &[b"ab\xff\0\xff\xff\xff", &FRAME[1..], SCAN], Some((5, 3))),
            ("the last frame wins", &[FRAME, LARGER, SCAN], Some((6, 4))),
            ("markers without a segment", &[b"\xff\xd8\xff\xd0\xff\xf3", FRAME, SCAN], Some((5, 3))),
            ("no frame", &[SCAN], None),
            ("no scan", &[FRAME], None),
            ("a truncated scan", &[FRAME, &SCAN[..5]], None),
            ("a marker that does not exist", &[b"\xff\x02", FRAME, SCAN], None),
            ("a truncated table", &[b"\xff\xdb\0\x04\0\x01", FRAME, SCAN], None),
            ("Adobe without a version", &[b"\xff\xee\0\x07Adobe", FRAME, SCAN], None),
        ];
        for (name, parts, expected) in rows {
            let file = [b"\xff\xd8", parts.concat().as_slice()].concat();
            let header = Header::read(&file, DecodeLimits::default());
            let size = header
                .ok()
                .map(|header| (header.size.width, header.size.height));
            assert_eq!(size, *expected, "{name}");
        }
    }
}
