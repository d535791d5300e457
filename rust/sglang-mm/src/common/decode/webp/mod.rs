//! WebP, lossy and lossless, decoded by libwebp, with alpha dropped.
//!
//! The pixels of lossy images, and of damaged images of both kinds, depend on the decoder. Pillow uses
//! libwebp, so this module uses it too. Only the first frame of an animation is decoded, on a black
//! canvas and without blending, as in libwebp.

mod libwebp;

use super::cursor::u32_le;
use super::error::DecodeError;
use super::exif::Metadata;
use super::format::Format;
use super::orientation::Orientation;
use super::pixels::{DecodeLimits, RgbImage};
use crate::common::Size;

use libwebp::{Container, Failure};

/// The parsed container of a file.
pub(super) struct Header<'a> {
    container: Container<'a>,
    size: Size,
}

impl<'a> Header<'a> {
    pub(super) fn read(bytes: &'a [u8], limits: DecodeLimits) -> Result<Self, DecodeError> {
        let container = Container::parse(bytes).ok_or_else(|| refusal(bytes))?;
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
            .map_err(|_| corrupt("EXIF data without a TIFF header"))
    }

    pub(super) fn decode(&self) -> Result<RgbImage, DecodeError> {
        let frame = self.container.first_frame();
        let frame = frame.ok_or_else(|| corrupt("it has no frame"))?;
        let mut image = self.size.filled([0; 3])?;
        let stride = self.size.width * 3;
        let start = frame.top * stride + frame.left * 3;
        let pixels = image.pixels.get_mut(start..);
        let pixels = pixels.ok_or_else(|| corrupt("a frame outside of the image"))?;
        libwebp::decode(frame.data, pixels, stride).map_err(|failure| match failure {
            Failure::OutOfMemory => DecodeError::OutOfMemory,
            Failure::Truncated => DecodeError::truncated(Format::WebP, "the pixel data"),
            Failure::Corrupt => corrupt("the pixel data"),
        })?;
        Ok(image)
    }
}

/// Why libwebp refused the container. libwebp gives no reason, so a file that is too short is recognised here.
fn refusal(bytes: &[u8]) -> DecodeError {
    let declared = u32_le(bytes, 4).map_or(u64::MAX, |length| u64::from(length) + 8);
    if declared > bytes.len() as u64 {
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
    fn incomplete_containers_are_refused() {
        let rows: &[(&str, &[u8], &str)] = &[
            (
                "truncated",
                b"RIFF\x05\0\0\0WEBP",
                "ends inside its container",
            ),
            (
                "truncated in its length",
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
