//! WebP, lossy and lossless: libwebp's decoder, with alpha dropped.
//!
//! Lossy pictures depend on the decoder as JPEGs do, and damaged ones of both kinds even more, so it
//! is the one that Pillow has. Of an animation the first frame is decoded, as it is, on a canvas of
//! black: libwebp does not blend the first frame with anything.

mod libwebp;

use super::cursor::u32_le;
use super::error::DecodeError;
use super::exif::Metadata;
use super::format::Format;
use super::orientation::Orientation;
use super::pixels::{DecodeLimits, RgbImage};
use crate::common::Size;

use libwebp::{Container, Failure};

/// A file whose container was read.
pub(super) struct Header<'a> {
    container: Container<'a>,
    size: Size,
}

impl<'a> Header<'a> {
    pub(super) fn read(bytes: &'a [u8], limits: DecodeLimits) -> Result<Self, DecodeError> {
        let container = Container::of(bytes).ok_or_else(|| refusal(bytes))?;
        let (width, height) = container.canvas();
        let size = Size::checked(Format::WebP, width.into(), height.into(), limits)?;
        Ok(Self { container, size })
    }

    pub(super) fn size(&self) -> Size {
        self.size
    }

    pub(super) fn orientation(&self) -> Result<Orientation, DecodeError> {
        let chunk = |name| self.container.chunk(name).filter(|body| !body.is_empty());
        let metadata = Metadata {
            exif: chunk(c"EXIF").map(Into::into),
            xmp: chunk(c"XMP ").map(Into::into),
        };
        metadata
            .orientation()
            .map_err(|_| corrupt("EXIF data that are no TIFF block"))
    }

    pub(super) fn decode(&self) -> Result<RgbImage, DecodeError> {
        let frame = self.container.first_frame();
        let frame = frame.ok_or_else(|| corrupt("it has no frame"))?;
        let mut image = self.size.filled([0; 3])?;
        let stride = self.size.width * 3;
        let start = frame.top * stride + frame.left * 3;
        let pixels = image.pixels.get_mut(start..);
        let pixels = pixels.ok_or_else(|| corrupt("a frame outside of the picture"))?;
        libwebp::decode(frame.data, pixels, stride).map_err(|failure| match failure {
            Failure::OutOfMemory => DecodeError::OutOfMemory,
            Failure::Truncated => DecodeError::truncated(Format::WebP, "the pixel data"),
            Failure::Corrupt => corrupt("the pixel data"),
        })?;
        Ok(image)
    }
}

/// Why libwebp does not take the container: most often because it ends too early.
fn refusal(bytes: &[u8]) -> DecodeError {
    let promised = u32_le(bytes, 4).map_or(u64::MAX, |length| u64::from(length) + 8);
    if promised > bytes.len() as u64 {
        return DecodeError::truncated(Format::WebP, "its container");
    }
    corrupt("its container")
}

fn corrupt(problem: &'static str) -> DecodeError {
    DecodeError::corrupt(Format::WebP, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_whole_or_refused() {
        let rows: &[(&str, &[u8], &str)] = &[
            ("cut", b"RIFF\x05\0\0\0WEBP", "ends inside its container"),
            (
                "cut in its length",
                b"RIFF\x05\0",
                "ends inside its container",
            ),
            ("empty", b"RIFF\x04\0\0\0WEBP", "corrupt: its container"),
        ];
        for (name, bytes, words) in rows {
            let refusal = Header::read(bytes, DecodeLimits::default()).err().unwrap();
            assert!(refusal.to_string().contains(words), "{name}: {refusal}");
        }
    }
}
