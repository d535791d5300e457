//! Decide what pixels a picture file holds: bytes in, 8-bit RGB out, equal to Pillow's `convert("RGB")`.
//!
//! The format is sniffed from the content. Only the first frame of an animation is decoded, alpha is
//! dropped and not composited, EXIF orientation and colour profiles are ignored, and samples wider
//! than 8 bits are refused. A file that Pillow refuses as truncated or damaged is refused here.
//!
//! Invariant: the size in the header is checked against [`DecodeLimits`] before anything that grows
//! with it is allocated, and no bytes, however damaged, can panic.

mod bmp;
mod cursor;
mod error;
mod gif;
mod jpeg;
mod lzw;
mod pixels;
mod png;
mod rle;
mod sniff;
mod webp;

pub use error::DecodeError;
pub use pixels::{DecodeLimits, RgbImage};
pub use sniff::{Format, sniff};

/// Decode `bytes` under the default limits.
///
/// # Errors
/// When the format is not served, or the file is damaged, or it is larger than the limits allow.
pub fn decode_rgb(bytes: &[u8]) -> Result<RgbImage, DecodeError> {
    decode_rgb_with(bytes, &DecodeLimits::default())
}

/// Decode `bytes` under `limits`.
///
/// # Errors
/// As [`decode_rgb`].
pub fn decode_rgb_with(bytes: &[u8], limits: &DecodeLimits) -> Result<RgbImage, DecodeError> {
    match sniff(bytes).ok_or(DecodeError::UnknownFormat)? {
        Format::Jpeg => jpeg::Header::read(bytes, *limits)?.decode(bytes),
        Format::Png => png::Header::read(bytes, *limits)?.decode(),
        Format::WebP => webp::Header::read(bytes, *limits)?.decode(),
        Format::Gif => gif::Header::read(bytes, *limits)?.decode(bytes),
        Format::Bmp => bmp::Header::read(bytes, *limits)?.decode(bytes),
    }
}

/// Height and width of the decoded picture, read from the headers alone.
///
/// # Errors
/// As [`decode_rgb`], for what the headers show. No limit applies: nothing is allocated.
pub fn dimensions(bytes: &[u8]) -> Result<(usize, usize), DecodeError> {
    let limits = DecodeLimits {
        max_pixels: u64::MAX,
    };
    let size = match sniff(bytes).ok_or(DecodeError::UnknownFormat)? {
        Format::Jpeg => jpeg::Header::read(bytes, limits)?.size(),
        Format::Png => png::Header::read(bytes, limits)?.size(),
        Format::WebP => webp::Header::read(bytes, limits)?.size(),
        Format::Gif => gif::Header::read(bytes, limits)?.size(),
        Format::Bmp => bmp::Header::read(bytes, limits)?.size(),
    };
    Ok((size.height, size.width))
}
