//! BMP: the Windows and OS/2 headers, uncompressed rows of 1 to 32 bits, bit fields and run lengths.
//!
//! Supported variants and the handling of contradictory headers are the same as in Pillow. For
//! instance, a palette that is a plain ramp of greys is ignored, and the indices become the samples.

use std::borrow::Cow;

use super::super::memory::{OutOfMemory, zeroed};
use super::cursor::{Cursor, u16_le, u32_le};
use super::error::DecodeError;
use super::format::Format;
use super::pixels::{DecodeLimits, Palette, RgbImage, unpack_bits};
use super::rle;
use crate::common::Size;

const FILE_HEADER: usize = 14;

/// How one row of pixels is stored.
#[derive(Clone, Debug)]
enum Pixels {
    /// Indices of 1, 4 or 8 bits.
    Indexed { bits: usize, palette: Box<Palette> },
    /// 16 bits: five of blue, five or six of green, five of red.
    Packed { green_bits: u16 },
    /// Whole bytes: `step` bytes per pixel, and the offsets of red, green and blue in it.
    Bytes { step: usize, rgb: [usize; 3] },
}

/// How the rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    Rows { stride: usize },
    Runs(rle::Unit),
}

/// The header and palette of a file.
pub(super) struct Header {
    size: Size,
    top_down: bool,
    pixels: Pixels,
    storage: Storage,
    data: usize,
}

/// The fields of a header of any version.
struct Fields {
    width: u64,
    height: u64,
    top_down: bool,
    bits: u16,
    compression: u32,
    colours: u32,
    entry: usize,
    masks: [u32; 4],
}

impl Header {
    pub(super) fn read(bytes: &[u8], limits: DecodeLimits) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::at(bytes, FILE_HEADER);
        let offset = u32_le(bytes, 10).ok_or_else(truncated_header)? as usize;
        let header_size = cursor
            .array()
            .map(u32::from_le_bytes)
            .ok_or_else(truncated_header)?;
        let fields = Fields::read(&mut cursor, header_size)?;
        let size = Size::checked(Format::Bmp, fields.width, fields.height, limits)?;
        let (pixels, storage) = fields.layout(&mut cursor, size.width)?;
        let data = match offset {
            0 => cursor.position(),
            // Some writers set the pixel offset to the start of the palette.
            _ if offset == FILE_HEADER + header_size as usize && fields.bits <= 8 => {
                offset + fields.entry * fields.colours as usize
            }
            _ => offset,
        };
        Ok(Self {
            size,
            top_down: fields.top_down,
            pixels,
            storage,
            data,
        })
    }

    pub(super) fn size(&self) -> Size {
        self.size
    }

    pub(super) fn decode(&self, bytes: &[u8]) -> Result<RgbImage, DecodeError> {
        let cursor = Cursor::at(bytes, self.data);
        match self.storage {
            Storage::Rows { stride } => Ok(self.paint(self.rows(cursor, stride)?, stride)?),
            Storage::Runs(unit) => {
                let indices = rle::expand(cursor, unit, self.size)?
                    .ok_or_else(|| DecodeError::truncated(Format::Bmp, "the run-length data"))?;
                Ok(self.paint(&indices, self.size.width)?)
            }
        }
    }

    /// The bytes of all rows. The padding of the last row may be missing.
    fn rows<'a>(&self, mut cursor: Cursor<'a>, stride: usize) -> Result<&'a [u8], DecodeError> {
        let length = stride * (self.size.height - 1) + self.row_bytes();
        cursor
            .take(length)
            .ok_or_else(|| DecodeError::truncated(Format::Bmp, "the pixel rows"))
    }

    fn row_bytes(&self) -> usize {
        row_bytes(&self.pixels, self.size.width)
    }

    fn paint(&self, data: &[u8], stride: usize) -> Result<RgbImage, OutOfMemory> {
        let mut image = self.size.filled([0; 3])?;
        let width = self.size.width;
        let mut samples = zeroed(width)?;
        let runs = matches!(self.storage, Storage::Runs(_));
        let stored = data.chunks(stride);
        let mut paint_row = |row: &[u8], out: &mut [u8]| match &self.pixels {
            // `rle::expand` returned one index per byte.
            Pixels::Indexed { palette, .. } if runs => palette.paint(row, out),
            Pixels::Indexed { bits, palette } => {
                unpack_bits(row, *bits, &mut samples);
                palette.paint(&samples, out);
            }
            Pixels::Packed { green_bits } => unpack_16(row, *green_bits, out),
            Pixels::Bytes { step, rgb } => pick_bytes(row, *step, *rgb, out),
        };
        let out = image.pixels.chunks_exact_mut(width * 3);
        if self.top_down {
            out.zip(stored).for_each(|(out, row)| paint_row(row, out));
        } else {
            out.rev()
                .zip(stored)
                .for_each(|(out, row)| paint_row(row, out));
        }
        Ok(image)
    }
}

impl Fields {
    fn read(cursor: &mut Cursor<'_>, header_size: u32) -> Result<Self, DecodeError> {
        let rest = (header_size as usize).saturating_sub(4);
        let header = cursor.take(rest).ok_or_else(truncated_header)?;
        match header_size {
            12 => Self::read_core(header).ok_or_else(truncated_header),
            40 | 52 | 56 | 64 | 108 | 124 => {
                Self::read_info(header, cursor).ok_or_else(truncated_header)
            }
            _ => Err(unsupported(format!("header of {header_size} bytes"))),
        }
    }

    /// The first OS/2 header.
    fn read_core(header: &[u8]) -> Option<Self> {
        let bits = u16_le(header, 6)?;
        Some(Self {
            width: u16_le(header, 0)?.into(),
            height: u16_le(header, 2)?.into(),
            top_down: false,
            bits,
            compression: compression::NONE,
            colours: colours_of(bits),
            entry: 3,
            masks: [0; 4],
        })
    }

    /// Windows headers of versions 3 to 5, and the second OS/2 header.
    fn read_info(header: &[u8], cursor: &mut Cursor<'_>) -> Option<Self> {
        let height = u32_le(header, 4)?;
        // Like Pillow, takes a height as negative only if its highest byte is 0xff. Other heights with
        // the sign bit set are read as huge, and refused by the limit.
        let top_down = header[7] == 0xff;
        let bits = u16_le(header, 10)?;
        let compression = u32_le(header, 12)?;
        let masks = match compression {
            compression::BITFIELDS => read_masks(header, cursor)?,
            _ => [0; 4],
        };
        Some(Self {
            width: u32_le(header, 0)?.into(),
            height: if top_down {
                height.wrapping_neg()
            } else {
                height
            }
            .into(),
            top_down,
            bits,
            compression,
            colours: match u32_le(header, 28)? {
                0 => colours_of(bits),
                colours => colours,
            },
            entry: 4,
            masks,
        })
    }

    fn layout(
        &self,
        cursor: &mut Cursor<'_>,
        width: usize,
    ) -> Result<(Pixels, Storage), DecodeError> {
        let pixels = match (self.bits, self.compression) {
            (1 | 4 | 8, compression::NONE | compression::RLE8 | compression::RLE4) => {
                self.indexed(cursor)?
            }
            (16 | 24 | 32, compression::NONE | compression::BITFIELDS) => self.direct()?,
            (bits @ (1 | 4 | 8 | 16 | 24 | 32), compression) => {
                return Err(unsupported(format!(
                    "compression {compression} with {bits} bits a pixel"
                )));
            }
            (bits, _) => return Err(unsupported(format!("{bits} bits a pixel"))),
        };
        let storage = match self.compression {
            compression::RLE8 => Storage::Runs(rle::Unit::Byte),
            compression::RLE4 => Storage::Runs(rle::Unit::Nibble),
            _ => Storage::Rows {
                stride: (width * usize::from(self.bits)).div_ceil(32) * 4,
            },
        };
        match storage {
            Storage::Rows { stride } if stride < row_bytes(&pixels, width) => Err(
                DecodeError::corrupt(Format::Bmp, "too few bits per pixel for a grey palette"),
            ),
            _ => Ok((pixels, storage)),
        }
    }

    /// Pixels that are indices. If the palette is a ramp of greys, the indices are samples.
    fn indexed(&self, cursor: &mut Cursor<'_>) -> Result<Pixels, DecodeError> {
        let colours = self.colours as usize;
        if !(1..=65_536).contains(&colours) {
            return Err(unsupported(format!("palette of {colours} colours")));
        }
        let entries = cursor.read(self.entry * colours);
        let bits = self.bits.into();
        if !is_grey_ramp(entries, self.entry, colours) {
            let palette = match self.entry {
                3 => Palette::from_entries(entries, |[b, g, r]| [r, g, b]),
                _ => Palette::from_entries(entries, |[b, g, r, _]| [r, g, b]),
            }
            .ok_or_else(|| unsupported(format!("palette of {colours} colours")))?;
            let palette = Box::new(palette);
            return Ok(Pixels::Indexed { bits, palette });
        }
        Ok(if colours > 2 {
            let palette = Box::new(Palette::grey());
            Pixels::Indexed { bits: 8, palette }
        } else {
            // Every sample other than 0 is white, also the 8-bit values of a run.
            let mut palette = Box::new(Palette([[255; 3]; 256]));
            palette.0[0] = [0; 3];
            Pixels::Indexed { bits: 1, palette }
        })
    }

    fn direct(&self) -> Result<Pixels, DecodeError> {
        let bytes = |step, rgb| Ok(Pixels::Bytes { step, rgb });
        let [r, g, b, a] = self.masks;
        match (self.bits, self.compression, [r, g, b]) {
            (16, compression::NONE, _) | (16, _, [0x7c00, 0x03e0, 0x001f]) => {
                Ok(Pixels::Packed { green_bits: 5 })
            }
            (16, _, [0xf800, 0x07e0, 0x001f]) => Ok(Pixels::Packed { green_bits: 6 }),
            (24, compression::NONE, _) | (24, _, [0xff_0000, 0xff00, 0xff]) => bytes(3, [2, 1, 0]),
            (32, compression::NONE, _) => bytes(4, [2, 1, 0]),
            (32, _, rgb) => match (rgb, a) {
                ([0xff_0000, 0xff00, 0xff], 0 | 0xff00_0000) | ([0, 0, 0], 0) => {
                    bytes(4, [2, 1, 0])
                }
                ([0xff00_0000, 0xff_0000, 0xff00], 0 | 0xff) => bytes(4, [3, 2, 1]),
                ([0xff00_0000, 0xff00, 0xff], 0 | 0xff_0000) => bytes(4, [3, 1, 0]),
                ([0xff, 0xff00, 0xff_0000], 0xff00_0000) => bytes(4, [0, 1, 2]),
                _ => Err(unsupported("bit fields that are not whole bytes")),
            },
            _ => Err(unsupported("bit fields in an unknown layout")),
        }
    }
}

mod compression {
    pub(super) const NONE: u32 = 0;
    pub(super) const RLE8: u32 = 1;
    pub(super) const RLE4: u32 = 2;
    pub(super) const BITFIELDS: u32 = 3;
}

/// Reads the bit field masks. They are part of the longer headers and follow the shortest one.
fn read_masks(header: &[u8], cursor: &mut Cursor<'_>) -> Option<[u32; 4]> {
    let mut masks = [0; 4];
    let inside = match header.len() {
        52.. => 4,
        48.. => 3,
        _ => 0,
    };
    for (index, mask) in masks[..inside].iter_mut().enumerate() {
        *mask = u32_le(header, 36 + index * 4)?;
    }
    if inside == 0 {
        for mask in &mut masks[..3] {
            *mask = cursor.array().map(u32::from_le_bytes)?;
        }
    }
    Some(masks)
}

/// The palette size if the header does not give it.
fn colours_of(bits: u16) -> u32 {
    1u32.checked_shl(bits.into()).unwrap_or(0)
}

fn is_grey_ramp(entries: &[u8], entry: usize, colours: usize) -> bool {
    let step = if colours == 2 { 255 } else { 1 };
    entries.len() == entry * colours
        && entries
            .chunks_exact(entry)
            .enumerate()
            .all(|(index, colour)| colour[..3] == [(index * step) as u8; 3])
}

fn row_bytes(pixels: &Pixels, width: usize) -> usize {
    match pixels {
        Pixels::Indexed { bits, .. } => (width * bits).div_ceil(8),
        Pixels::Packed { .. } => width * 2,
        Pixels::Bytes { step, .. } => width * step,
    }
}

fn unpack_16(row: &[u8], green_bits: u16, out: &mut [u8]) {
    let scaled = |value: u16, max: u16| (u32::from(value & max) * 255 / u32::from(max)) as u8;
    let green = (1 << green_bits) - 1;
    for (out, pixel) in out.as_chunks_mut().0.iter_mut().zip(row.as_chunks().0) {
        let pixel = u16::from_le_bytes(*pixel);
        *out = [
            scaled(pixel >> (5 + green_bits), 31),
            scaled(pixel >> 5, green),
            scaled(pixel, 31),
        ];
    }
}

fn pick_bytes(row: &[u8], step: usize, [r, g, b]: [usize; 3], out: &mut [u8]) {
    for (out, pixel) in out.as_chunks_mut().0.iter_mut().zip(row.chunks_exact(step)) {
        *out = [pixel[r], pixel[g], pixel[b]];
    }
}

fn truncated_header() -> DecodeError {
    DecodeError::truncated(Format::Bmp, "the header")
}

fn unsupported(feature: impl Into<Cow<'static, str>>) -> DecodeError {
    DecodeError::unsupported(Format::Bmp, feature)
}
