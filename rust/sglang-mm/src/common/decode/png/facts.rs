//! What the chunks of a PNG file say about its pixels, with a check of each chunk's form.
//!
//! Chunks that do not affect the pixels are checked too, because Pillow checks them: a file with a
//! truncated `gAMA` is refused. Their content is not kept.

use super::super::cursor::u32_be;
use super::super::error::DecodeError;
use super::super::format::Format;
use super::color::Color;
use super::error::corrupt;
use super::layout::Region;
use super::metadata::Metadata;
use super::text::{InternationalText, TextBudget, inflated_len};

use crate::common::Size;

/// The content of the chunks read so far.
#[derive(Debug, Default)]
pub(super) struct Facts<'a> {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) interlaced: bool,
    pub(super) palette: Option<&'a [u8]>,
    pub(super) metadata: Metadata<'a>,
    /// Exactly one index is transparent, and no other has alpha. Pillow then looks up its colour, which
    /// fails without a palette.
    pub(super) lone_transparent: bool,
    depth_and_type: Option<(u8, u8)>,
    region: Option<[u32; 4]>,
    sequence: Option<u32>,
    /// The number of frames that a valid `acTL` chunk declares.
    frames: Option<u32>,
    /// The first data chunk holds the animation's fallback image, which is not one of its frames.
    fallback: bool,
    text: TextBudget,
}

/// The two kinds of numbered chunks of an animation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A frame's header. It may be the first of the sequence.
    Control,
    /// Data of a frame.
    Data,
}

impl<'a> Facts<'a> {
    /// Handles the chunk `kind`.
    pub(super) fn read(&mut self, kind: [u8; 4], body: &'a [u8]) -> Result<(), DecodeError> {
        match &kind {
            b"IHDR" => self.read_header(body),
            b"PLTE" => {
                // Ignored unless a header before it declares an indexed image.
                if self.is_indexed() {
                    self.palette = Some(body);
                }
                Ok(())
            }
            b"tRNS" => self.check_transparency(body),
            b"gAMA" => at_least(body, 4),
            b"cHRM" => at_least(body, 32),
            b"sRGB" => at_least(body, 1),
            b"pHYs" => at_least(body, 9),
            b"iCCP" | b"zTXt" | b"tEXt" | b"iTXt" => self.read_text(kind, body),
            b"eXIf" => {
                self.metadata.read_exif(body);
                Ok(())
            }
            b"acTL" => self.read_animation(body),
            b"fcTL" => self.read_frame(body),
            _ => Ok(()),
        }
    }

    /// Notes that pixel data starts here, and whether it is an animation's fallback image.
    pub(super) fn begin_data(&mut self) {
        self.fallback |= self.region.is_none() && self.frames.is_some();
    }

    /// Whether a header with a known colour type was read. Data before such a header is not pixel data.
    pub(super) fn has_color(&self) -> bool {
        self.depth_and_type.is_some()
    }

    fn is_indexed(&self) -> bool {
        matches!(self.depth_and_type, Some((_, 3)))
    }

    pub(super) fn is_animated(&self) -> bool {
        let frames = self
            .frames
            .unwrap_or(1)
            .saturating_add(self.fallback.into());
        frames > 1
    }

    pub(super) fn color(&self) -> Result<Color, DecodeError> {
        let (bits, kind) = self
            .depth_and_type
            .ok_or_else(|| corrupt("a colour type that does not exist"))?;
        if bits == 16 {
            return Err(DecodeError::UnsupportedColor {
                format: Format::Png,
                bits,
            });
        }
        let bits = bits.into();
        Ok(match kind {
            0 => Color::Grey { bits },
            2 => Color::Rgb,
            3 => Color::Indexed { bits },
            4 => Color::GreyAlpha,
            _ => Color::Rgba,
        })
    }

    /// The part of the image that the data covers.
    pub(super) fn region(&self, size: Size) -> Result<Region, DecodeError> {
        let Some(region) = self.region else {
            return Ok(Region::whole(size));
        };
        let [width, height, left, top] = region.map(|number| number as usize);
        // The frame was checked against the header before it. A later header may have replaced
        // that header.
        if width == 0 || height == 0 || left + width > size.width || top + height > size.height {
            return Err(corrupt("a frame outside of the image"));
        }
        Ok(Region {
            left,
            top,
            width,
            height,
        })
    }

    /// Checks that `number` is the next one in the sequence of `fcTL` and `fdAT` chunks.
    pub(super) fn next_in_sequence(&mut self, number: u32, step: Step) -> Result<(), DecodeError> {
        let expected = match (self.sequence, step) {
            (None, Step::Control) => Some(0),
            (None, Step::Data) => None,
            (Some(last), _) => last.checked_add(1),
        };
        if expected != Some(number) {
            return Err(corrupt("frames out of sequence"));
        }
        self.sequence = Some(number);
        Ok(())
    }

    fn read_header(&mut self, body: &[u8]) -> Result<(), DecodeError> {
        let Some((
            &[
                w0,
                w1,
                w2,
                w3,
                h0,
                h1,
                h2,
                h3,
                depth,
                kind,
                _,
                filter,
                interlace,
            ],
            _,
        )) = body.split_first_chunk()
        else {
            return Err(too_short());
        };
        if filter != 0 {
            return Err(corrupt("a filter method that does not exist"));
        }
        self.width = u32::from_be_bytes([w0, w1, w2, w3]);
        self.height = u32::from_be_bytes([h0, h1, h2, h3]);
        if let (1 | 2 | 4 | 8 | 16, 0) | (1 | 2 | 4 | 8, 3) | (8 | 16, 2 | 4 | 6) = (depth, kind) {
            self.depth_and_type = Some((depth, kind));
        }
        self.interlaced |= interlace != 0;
        Ok(())
    }

    fn check_transparency(&mut self, body: &[u8]) -> Result<(), DecodeError> {
        match self.depth_and_type {
            Some((_, 0)) => at_least(body, 2),
            Some((_, 2)) => at_least(body, 6),
            Some((_, 3)) => {
                let mut others = body.iter().filter(|&&alpha| alpha != 0xff);
                self.lone_transparent = others.next() == Some(&0) && others.next().is_none();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn read_text(&mut self, kind: [u8; 4], body: &'a [u8]) -> Result<(), DecodeError> {
        let (name, rest) = match body.iter().position(|&byte| byte == 0) {
            Some(end) => (&body[..end], &body[end + 1..]),
            None => (body, &[][..]),
        };
        self.metadata.read_text(kind, name, rest);
        match &kind {
            b"tEXt" if name.is_empty() => Ok(()),
            b"tEXt" => self.text.spend(rest.len()),
            b"zTXt" => match rest.split_first() {
                Some((0, text)) => {
                    let length = inflated_len(text)?.unwrap_or(0);
                    self.text.spend(if name.is_empty() { 0 } else { length })
                }
                Some(_) => Err(corrupt("a compression method that does not exist")),
                None => Ok(()),
            },
            b"iTXt" => {
                let text = InternationalText::parse(rest).map_or(Ok(0), |text| text.length())?;
                self.text.spend(text)
            }
            _ => match rest.split_first() {
                Some((0, profile)) => inflated_len(profile).map(drop),
                _ => Err(corrupt("a colour profile of an unknown form")),
            },
        }
    }

    fn read_animation(&mut self, body: &[u8]) -> Result<(), DecodeError> {
        at_least(body, 8)?;
        let frames = u32_be(body, 0).filter(|count| (1..=0x8000_0000).contains(count));
        // A declaration that follows a valid one cancels both. An invalid declaration before a
        // valid one is ignored.
        self.frames = match self.frames {
            Some(_) => None,
            None => frames,
        };
        Ok(())
    }

    fn read_frame(&mut self, body: &[u8]) -> Result<(), DecodeError> {
        at_least(body, 26)?;
        let number = |at| u32_be(body, at).ok_or_else(too_short);
        self.next_in_sequence(number(0)?, Step::Control)?;
        let [width, height, left, top] = [number(4)?, number(8)?, number(12)?, number(16)?];
        let fits = |start: u32, length: u32, max: u32| {
            start.checked_add(length).is_some_and(|end| end <= max)
        };
        if !fits(left, width, self.width) || !fits(top, height, self.height) {
            return Err(corrupt("a frame outside of the image"));
        }
        self.region = Some([width, height, left, top]);
        Ok(())
    }
}

fn at_least(body: &[u8], length: usize) -> Result<(), DecodeError> {
    if body.len() < length {
        return Err(too_short());
    }
    Ok(())
}

fn too_short() -> DecodeError {
    corrupt("a chunk that is too short")
}
