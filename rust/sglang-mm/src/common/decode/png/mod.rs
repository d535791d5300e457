//! PNG: every colour type of up to 8 bits, interlaced or not, and the first frame of APNG.
//!
//! - `chunks` reads the chunks, and `facts` stores their content.
//! - `metadata` finds the orientation, and `text` limits compressed texts.
//! - `color` has the pixel formats.
//! - `stream` joins and inflates the data chunks, and `filter` undoes the row filters.
//! - `layout` places rows in the image, and `direct` is a fast path for whole RGB and RGBA images.
//!
//! Damage is an error exactly if Pillow reports it. Checksums are compared before the pixel data, but
//! not in or after it. If the stream ends early but at the end of a row, the rest of the image is sample 0.
//! The chunks after the pixels must be well formed.

mod chunks;
mod color;
mod direct;
mod error;
mod facts;
mod filter;
mod layout;
mod metadata;
mod stream;
mod text;

use super::super::memory::zeroed;
use super::error::DecodeError;
use super::format::Format;
use super::orientation::Orientation;
use super::pixels::{DecodeLimits, Palette, RgbImage, unpack_bits};
use crate::common::Size;

use chunks::Chunks;
use color::{Color, pick};
use error::corrupt;
use layout::{Pass, Region, passes};

/// A file parsed up to its pixel data.
pub(super) struct Header<'a> {
    size: Size,
    color: Color,
    palette: Box<Palette>,
    /// The file has no palette. If its pixels are indices, they are all black.
    lacks_palette: bool,
    region: Region,
    interlaced: bool,
    chunks: Chunks<'a>,
}

impl<'a> Header<'a> {
    pub(super) fn read(bytes: &'a [u8], limits: DecodeLimits) -> Result<Self, DecodeError> {
        let mut chunks = Chunks::of(bytes);
        chunks.read_to_data()?;
        let facts = &chunks.facts;
        let color = facts.color()?;
        let size = Size::checked(Format::Png, facts.width.into(), facts.height.into(), limits)?;
        let palette = match (color, facts.palette) {
            (Color::Grey { bits }, _) => grey_palette(bits),
            (Color::Indexed { .. }, Some(entries)) => {
                Palette::from_entries(entries, |rgb: [u8; 3]| rgb)
                    .ok_or_else(|| corrupt("a palette of more than 256 colours"))?
            }
            _ => Palette::BLACK,
        };
        Ok(Self {
            size,
            color,
            palette: Box::new(palette),
            lacks_palette: facts.palette.is_none(),
            region: facts.region(size)?,
            interlaced: facts.interlaced,
            chunks,
        })
    }

    pub(super) fn size(&self) -> Size {
        self.size
    }

    pub(super) fn decode(&mut self) -> Result<RgbImage, DecodeError> {
        let passes = passes(self.region, self.interlaced);
        let row_bytes = |pass: &Pass| (pass.width * self.color.bits()).div_ceil(8);
        let rows = passes
            .iter()
            .flat_map(|pass| std::iter::repeat_n(1 + row_bytes(pass), pass.height));
        let mut data = stream::inflate(&mut self.chunks, &rows)?;
        self.chunks.read_to_end()?;
        if self.chunks.facts.lone_transparent && self.lacks_palette {
            return Err(corrupt("a transparent index without a palette"));
        }

        let whole = self.region == Region::whole(self.size) && !self.interlaced;
        match self.color {
            Color::Rgb if whole => return direct::unfilter(data, self.size, 3),
            Color::Rgba if whole => return direct::unfilter(data, self.size, 4),
            _ => {}
        }
        // Rows after the end of the data keep sample 0.
        let mut image = self.size.filled(self.palette.0[0])?;
        let mut rest = data.as_mut_slice();
        for pass in &passes {
            let length = 1 + row_bytes(pass);
            let stored = rest.len().min(length * pass.height);
            let (rows, next) = rest.split_at_mut(stored);
            rest = next;
            self.paint_pass(*pass, rows, length, &mut image)?;
        }
        Ok(image)
    }

    /// Chunks after the pixels may hold the orientation, so they are read even if the pixels were not.
    pub(super) fn orientation(&mut self) -> Result<Orientation, DecodeError> {
        self.chunks.skip_data()?;
        self.chunks.facts.metadata.orientation()
    }

    /// Unfilters `rows` in place and writes each to its place in `image`.
    fn paint_pass(
        &self,
        pass: Pass,
        rows: &mut [u8],
        length: usize,
        image: &mut RgbImage,
    ) -> Result<(), DecodeError> {
        let unit = self.color.bits().div_ceil(8);
        let mut scratch = zeroed(pass.width * 3)?;
        let mut samples = zeroed(pass.width)?;
        let mut previous: &mut [u8] = &mut zeroed(length - 1)?;
        for (y, row) in rows.chunks_exact_mut(length).enumerate() {
            let (kind, row) = row
                .split_first_mut()
                .expect("a row starts with its filter byte");
            filter::undo(*kind, unit, previous, row)
                .ok_or_else(|| corrupt("a row filter that does not exist"))?;
            let start = ((pass.top + y * pass.step_y) * image.width + pass.left) * 3;
            if pass.step_x == 1 {
                let out = &mut image.pixels[start..start + pass.width * 3];
                self.paint_row(row, &mut samples, out);
            } else {
                self.paint_row(row, &mut samples, &mut scratch);
                let spread = image.pixels[start..].chunks_mut(pass.step_x * 3);
                for (out, pixel) in spread.zip(scratch.chunks_exact(3)) {
                    out[..3].copy_from_slice(pixel);
                }
            }
            previous = row;
        }
        Ok(())
    }

    fn paint_row(&self, row: &[u8], samples: &mut [u8], out: &mut [u8]) {
        match self.color {
            Color::Grey { bits: 8 } | Color::Indexed { bits: 8 } => self.palette.paint(row, out),
            Color::Grey { bits } | Color::Indexed { bits } => {
                unpack_bits(row, bits, samples);
                self.palette.paint(samples, out);
            }
            Color::Rgb => out.copy_from_slice(row),
            Color::GreyAlpha => pick(row, out, |[grey, _]: [u8; 2]| [grey; 3]),
            Color::Rgba => pick(row, out, |[r, g, b, _]: [u8; 4]| [r, g, b]),
        }
    }
}

/// Shades of `bits` bits, scaled to the range of a byte.
fn grey_palette(bits: usize) -> Palette {
    let top = (1usize << bits) - 1;
    Palette(std::array::from_fn(|shade| {
        [(shade.min(top) * 255 / top) as u8; 3]
    }))
}
