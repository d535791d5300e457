//! GIF: the first frame, painted on a canvas that the frame may enlarge.
//!
//! The *canvas* is the whole image, and the *frame* is the rectangle that holds pixels. The area
//! outside of the frame gets the frame's transparent index if it has one, else index 0.

use super::cursor::{Cursor, u16_le};
use super::error::DecodeError;
use super::format::Format;
use super::lzw;
use super::pixels::{DecodeLimits, Palette, RgbImage};
use crate::common::Size;

/// The place of the frame on the canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    interlaced: bool,
}

/// A file parsed up to the compressed indices of its first frame.
#[derive(Debug)]
pub(super) struct Header {
    size: Size,
    palette: Box<Palette>,
    background: u8,
    frame: Frame,
    code_bits: u8,
    data: usize,
}

/// A colour table, if the file has one.
enum Table {
    Absent,
    /// Every index is its own shade of grey, so the table adds no information.
    Ramp,
    Colours(Box<Palette>),
}

impl Header {
    pub(super) fn read(bytes: &[u8], limits: DecodeLimits) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::at(bytes, 6);
        let screen: [u8; 7] = cursor.array().ok_or_else(|| truncated("the header"))?;
        let [width, height] = [0, 2].map(|at| u16::from_le_bytes([screen[at], screen[at + 1]]));
        let global = read_table(&mut cursor, screen[4])?;
        let transparent = skip_extensions(&mut cursor)?;
        let descriptor: [u8; 9] = cursor
            .array()
            .ok_or_else(|| truncated("the frame's header"))?;
        let frame = Frame::parse(&descriptor);
        let local = read_table(&mut cursor, descriptor[8])?;
        let code_bits = cursor
            .byte()
            .ok_or_else(|| truncated("the frame's header"))?;
        if frame.width == 0 || frame.height == 0 {
            return Err(DecodeError::corrupt(
                Format::Gif,
                "the first frame is empty",
            ));
        }
        let size = Size::checked(
            Format::Gif,
            usize::from(width).max(frame.left + frame.width) as u64,
            usize::from(height).max(frame.top + frame.height) as u64,
            limits,
        )?;
        Ok(Self {
            size,
            palette: choose_palette(local, global),
            background: transparent.unwrap_or(0),
            frame,
            code_bits,
            data: cursor.position(),
        })
    }

    pub(super) fn size(&self) -> Size {
        self.size
    }

    pub(super) fn decode(&self, bytes: &[u8]) -> Result<RgbImage, DecodeError> {
        let Frame {
            left,
            top,
            width,
            height,
            ..
        } = self.frame;
        let data = bytes.get(self.data..).unwrap_or_default();
        let indices = lzw::expand(data, self.code_bits, width * height)?;
        let mut image = self
            .size
            .filled(self.palette.0[usize::from(self.background)])?;
        let rows = indices.chunks_exact(width);
        for (row, y) in rows.zip(row_order(height, self.frame.interlaced)) {
            let start = ((top + y) * self.size.width + left) * 3;
            self.palette
                .paint(row, &mut image.pixels[start..start + width * 3]);
        }
        Ok(image)
    }
}

impl Frame {
    fn parse(descriptor: &[u8; 9]) -> Self {
        let number = |at| u16::from_le_bytes([descriptor[at], descriptor[at + 1]]).into();
        Self {
            left: number(0),
            top: number(2),
            width: number(4),
            height: number(6),
            interlaced: descriptor[8] & 0x40 != 0,
        }
    }
}

/// The order in which rows are stored. Interlaced frames store every eighth row first, then the rows
/// between in three more passes.
fn row_order(height: usize, interlaced: bool) -> impl Iterator<Item = usize> {
    let passes: &[(usize, usize)] = if interlaced {
        &[(0, 8), (4, 8), (2, 4), (1, 2)]
    } else {
        &[(0, 1)]
    };
    passes
        .iter()
        .flat_map(move |&(first, step)| (first..height).step_by(step))
}

/// The palette of the frame. The local table has priority over the global one. As in Pillow, a table
/// that is a ramp of greys is skipped.
fn choose_palette(local: Table, global: Table) -> Box<Palette> {
    match (local, global) {
        (Table::Colours(palette), _) | (_, Table::Colours(palette)) => palette,
        _ => Box::new(Palette::grey()),
    }
}

fn read_table(cursor: &mut Cursor<'_>, flags: u8) -> Result<Table, DecodeError> {
    if flags & 0x80 == 0 {
        return Ok(Table::Absent);
    }
    let entries = cursor
        .take(3 << ((flags & 7) + 1))
        .ok_or_else(|| truncated("a colour table"))?;
    let ramp = entries
        .chunks_exact(3)
        .enumerate()
        .all(|(index, rgb)| rgb == [index as u8; 3]);
    Ok(match Palette::from_entries(entries, |rgb: [u8; 3]| rgb) {
        Some(palette) if !ramp => Table::Colours(Box::new(palette)),
        _ => Table::Ramp,
    })
}

/// Advances to the first frame. Returns the transparent index of its graphic control, if there is one.
fn skip_extensions(cursor: &mut Cursor<'_>) -> Result<Option<u8>, DecodeError> {
    let mut transparent = None;
    loop {
        match cursor.byte() {
            None | Some(b';') => {
                return Err(DecodeError::corrupt(Format::Gif, "it has no frame"));
            }
            Some(b',') => return Ok(transparent),
            Some(b'!') => read_extension(cursor, &mut transparent)?,
            // Junk between blocks is skipped.
            Some(_) => {}
        }
    }
}

fn read_extension(
    cursor: &mut Cursor<'_>,
    transparent: &mut Option<u8>,
) -> Result<(), DecodeError> {
    const GRAPHIC_CONTROL: u8 = 249;
    const COMMENT: u8 = 254;
    const APPLICATION: u8 = 255;
    let label = cursor.byte().ok_or_else(|| truncated("an extension"))?;
    let block = sub_block(cursor);
    if label == GRAPHIC_CONTROL
        && let Some(control) = block
    {
        let index = control.get(3).copied();
        if control.first().is_some_and(|flags| flags & 1 != 0) {
            *transparent = Some(index.ok_or_else(|| truncated("a graphic control"))?);
        }
        u16_le(control, 1).ok_or_else(|| truncated("a graphic control"))?;
    }
    // As in Pillow, an empty first block ends a comment, but not the other extensions.
    if label == COMMENT && block.is_none() {
        return Ok(());
    }
    // As in Pillow, a loop count is read here even if the extension has ended.
    if label == APPLICATION && block.is_some_and(|name| name.starts_with(b"NETSCAPE2.0")) {
        sub_block(cursor);
    }
    while sub_block(cursor).is_some() {}
    Ok(())
}

/// The next block of an extension. `None` at its end. If the file ends inside the block, the bytes up
/// to the end are returned.
fn sub_block<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    match cursor.byte() {
        None | Some(0) => None,
        Some(length) => Some(cursor.read(length.into())).filter(|block| !block.is_empty()),
    }
}

fn truncated(inside: &'static str) -> DecodeError {
    DecodeError::truncated(Format::Gif, inside)
}
