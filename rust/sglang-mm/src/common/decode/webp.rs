//! WebP, lossy and lossless: what `image-webp` decodes, with alpha dropped.
//!
//! Its lossy decoder upsamples chroma as libwebp does, so both kinds give Pillow's bytes.

use std::io;

use image_webp::{DecodingError, WebPDecoder};

use super::error::DecodeError;
use super::pixels::{DecodeLimits, RgbImage, Size};
use super::sniff::Format;

/// A file whose container was read.
pub(super) struct Header<'a> {
    decoder: WebPDecoder<io::Cursor<&'a [u8]>>,
    size: Size,
}

impl<'a> Header<'a> {
    pub(super) fn read(bytes: &'a [u8], limits: DecodeLimits) -> Result<Self, DecodeError> {
        let decoder = WebPDecoder::new(io::Cursor::new(bytes)).map_err(|error| refusal(&error))?;
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
        let mut pixels = vec![0; self.size.pixels() * channels];
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
