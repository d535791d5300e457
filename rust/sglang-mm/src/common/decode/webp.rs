//! WebP, lossy and lossless: what `image-webp` decodes, with alpha dropped.
//!
//! Its lossy decoder upsamples chroma as libwebp does, so both kinds give Pillow's bytes. The
//! container is looked at here first, for two things that it treats otherwise than libwebp: a file
//! shorter than it says is refused, and the first frame of an animation is never blended.

use std::borrow::Cow;
use std::io;

use image_webp::{DecodingError, WebPDecoder};

use super::super::memory::zeroed;
use super::cursor::{Cursor, u32_le};
use super::error::DecodeError;
use super::pixels::{DecodeLimits, RgbImage, Size};
use super::sniff::Format;

/// A file whose container was read.
pub(super) struct Header<'a> {
    decoder: WebPDecoder<io::Cursor<Cow<'a, [u8]>>>,
    size: Size,
}

impl<'a> Header<'a> {
    pub(super) fn read(bytes: &'a [u8], limits: DecodeLimits) -> Result<Self, DecodeError> {
        check_length(bytes)?;
        let file = io::Cursor::new(with_unblended_start(bytes));
        let decoder = WebPDecoder::new(file).map_err(|error| refusal(&error))?;
        let (width, height) = decoder.dimensions();
        let size = Size::checked(Format::WebP, width.into(), height.into(), limits)?;
        Ok(Self { decoder, size })
    }

    pub(super) fn size(&self) -> Size {
        self.size
    }

    pub(super) fn decode(mut self) -> Result<RgbImage, DecodeError> {
        let alpha = self.decoder.has_alpha();
        let channels = if alpha { 4 } else { 3 };
        let mut pixels = zeroed(self.size.pixels() * channels)?;
        self.decoder
            .read_image(&mut pixels)
            .map_err(|error| refusal(&error))?;
        if alpha {
            drop_alpha(&mut pixels);
        }
        Ok(RgbImage {
            height: self.size.height,
            width: self.size.width,
            pixels,
        })
    }
}

/// The container must be whole; bytes behind it are no matter.
fn check_length(bytes: &[u8]) -> Result<(), DecodeError> {
    let promised = u32_le(bytes, 4).map_or(u64::MAX, |length| u64::from(length) + 8);
    if promised > bytes.len() as u64 {
        return Err(DecodeError::truncated(Format::WebP, "its container"));
    }
    Ok(())
}

/// The file, its first frame marked to replace the canvas: that is what libwebp makes of it anyway.
fn with_unblended_start(bytes: &[u8]) -> Cow<'_, [u8]> {
    const DO_NOT_BLEND: u8 = 2;
    match first_frame_flags(bytes) {
        Some(at) if bytes[at] & DO_NOT_BLEND == 0 => {
            let mut file = bytes.to_vec();
            file[at] |= DO_NOT_BLEND;
            Cow::Owned(file)
        }
        _ => Cow::Borrowed(bytes),
    }
}

/// Where the flags of the first animation frame are.
fn first_frame_flags(bytes: &[u8]) -> Option<usize> {
    const RIFF_HEADER: usize = 12;
    const FRAME_FLAGS: usize = 15;
    let mut cursor = Cursor::at(bytes, RIFF_HEADER);
    loop {
        let name: [u8; 4] = cursor.array()?;
        let length = cursor.array().map(u32::from_le_bytes)? as usize;
        if &name == b"ANMF" {
            let flags = cursor.position() + FRAME_FLAGS;
            return (flags < bytes.len()).then_some(flags);
        }
        cursor.skip(length.next_multiple_of(2));
    }
}

/// RGBA to RGB in place.
fn drop_alpha(pixels: &mut Vec<u8>) {
    let count = pixels.len() / 4;
    for index in 1..count {
        pixels.copy_within(index * 4..index * 4 + 3, index * 3);
    }
    pixels.truncate(count * 3);
}

fn refusal(error: &DecodingError) -> DecodeError {
    match error {
        DecodingError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            DecodeError::truncated(Format::WebP, "a chunk")
        }
        error => DecodeError::corrupt(Format::WebP, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_whole_or_refused() {
        let rows: &[(&str, &[u8], bool)] = &[
            ("whole", b"RIFF\x04\0\0\0WEBP", true),
            ("with bytes behind it", b"RIFF\x04\0\0\0WEBPmore", true),
            ("cut", b"RIFF\x05\0\0\0WEBP", false),
            ("cut in its length", b"RIFF\x05\0", false),
        ];
        for (name, bytes, whole) in rows {
            assert_eq!(check_length(bytes).is_ok(), *whole, "{name}");
        }
    }

    #[test]
    fn only_the_first_frame_is_marked() {
        let frame = b"ANMF\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let file = [
            b"RIFF\0\0\0\0WEBPVP8X\x01\0\0\0.\0".as_slice(),
            frame,
            frame,
        ]
        .concat();
        let marked = with_unblended_start(&file);
        let moved: Vec<_> = (0..file.len())
            .filter(|&at| file[at] != marked[at])
            .collect();
        assert_eq!(moved, [22 + 23], "the flags of one frame");
        let still = b"RIFF\0\0\0\0WEBPVP8L\x01\0\0\0.\0";
        assert!(matches!(with_unblended_start(still), Cow::Borrowed(_)));
    }
}
