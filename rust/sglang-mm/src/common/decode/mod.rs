//! Decide what pixels a picture file holds: bytes in, 8-bit RGB out, equal to Pillow's `convert("RGB")`.
//!
//! The format is sniffed from the content. Only the first frame of an animation is decoded, alpha is
//! dropped and not composited, colour profiles are ignored, and samples wider than 8 bits are
//! refused. EXIF orientation is ignored too, unless [`DecodeOptions`] ask for it. A file that Pillow
//! refuses as truncated or damaged is refused here.
//!
//! Where it differs from Pillow 13.0, which decodes all of these but the last two:
//!
//! - 16-bit samples are refused: Pillow clips or halves them, and neither is a scale that a caller
//!   chose.
//! - Lossless JPEG (SOF3) is refused: it lives in medical archives, and libjpeg-turbo 2 cannot do it.
//! - A JPEG of more than 100 scans is refused: each costs a walk over the picture and a dozen bytes.
//! - Other formats than the five are refused.
//! - A JPEG is decoded whose EXIF data give the resolution as a single byte or an empty text: Pillow
//!   cannot open it.
//! - A picture is turned whose other EXIF tags Pillow cannot write back after it turned it.
//!
//! All else is equal: pixels, and which files are refused, damaged ones too.
//!
//! Beside the file and its pixels, 3 bytes each, a JPEG of several scans takes 2 bytes for each of its
//! samples: up to 6 a pixel, 3 where chroma is halved both ways. Four inks take 4 bytes a pixel, and up
//! to 8 more. A file may announce all that in a few hundred bytes, in Pillow as well: where it is too
//! much, lower the limit of pixels.
//!
//! Invariant: the size in the header is checked against [`DecodeLimits`] before anything that grows
//! with it is allocated, and no bytes, however damaged, can panic.

mod bmp;
mod cursor;
mod error;
mod exif;
mod foreign;
mod format;
mod gif;
mod jpeg;
mod lzw;
mod orientation;
mod pixels;
mod png;
mod rle;
mod sniff;
mod webp;

pub use error::DecodeError;
pub use format::Format;
pub use pixels::{DecodeLimits, DecodeOptions, RgbImage};
pub use sniff::sniff;

use crate::common::Size;
use orientation::Orientation;

/// Decode `bytes` under the default options.
///
/// # Errors
/// When the format is not served, or the file is damaged, or it is larger than the limits allow.
pub fn decode_rgb(bytes: &[u8]) -> Result<RgbImage, DecodeError> {
    decode_rgb_with(bytes, &DecodeOptions::default())
}

/// Decode `bytes` as `options` say.
///
/// # Errors
/// As [`decode_rgb`]; also, if it is to be turned, when its EXIF data cannot be read.
pub fn decode_rgb_with(bytes: &[u8], options: &DecodeOptions) -> Result<RgbImage, DecodeError> {
    let mut header = Header::read(bytes, options.limits)?;
    let image = header.decode(bytes)?;
    if options.exif_transpose {
        return Ok(header.orientation()?.upright(image)?);
    }
    Ok(image)
}

/// Height and width that [`decode_rgb`] gives, read from the headers alone.
///
/// # Errors
/// As [`decode_rgb`], for what the headers show. No limit applies: nothing is allocated.
pub fn dimensions(bytes: &[u8]) -> Result<(usize, usize), DecodeError> {
    let limits = DecodeLimits {
        max_pixels: u64::MAX,
    };
    dimensions_with(
        bytes,
        &DecodeOptions {
            limits,
            exif_transpose: false,
        },
    )
}

/// Height and width that [`decode_rgb_with`] gives for the same options, without decoding a pixel.
///
/// # Errors
/// As [`decode_rgb_with`], for what the headers show.
pub fn dimensions_with(
    bytes: &[u8],
    options: &DecodeOptions,
) -> Result<(usize, usize), DecodeError> {
    let mut header = Header::read(bytes, options.limits)?;
    let mut size = header.size();
    if options.exif_transpose {
        size = header.orientation()?.of_size(size);
    }
    Ok((size.height, size.width))
}

/// The headers of a file, whatever its format.
enum Header<'a> {
    Jpeg(jpeg::Header<'a>),
    Png(Box<png::Header<'a>>),
    WebP(Box<webp::Header<'a>>),
    Gif(gif::Header),
    Bmp(Box<bmp::Header>),
}

impl<'a> Header<'a> {
    fn read(bytes: &'a [u8], limits: DecodeLimits) -> Result<Self, DecodeError> {
        Ok(match sniff::served(bytes)? {
            Format::Jpeg => Self::Jpeg(jpeg::Header::read(bytes, limits)?),
            Format::Png => Self::Png(png::Header::read(bytes, limits)?.into()),
            Format::WebP => Self::WebP(webp::Header::read(bytes, limits)?.into()),
            Format::Gif => Self::Gif(gif::Header::read(bytes, limits)?),
            Format::Bmp => Self::Bmp(bmp::Header::read(bytes, limits)?.into()),
        })
    }

    fn size(&self) -> Size {
        match self {
            Self::Jpeg(header) => header.size(),
            Self::Png(header) => header.size(),
            Self::WebP(header) => header.size(),
            Self::Gif(header) => header.size(),
            Self::Bmp(header) => header.size(),
        }
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<RgbImage, DecodeError> {
        match self {
            Self::Jpeg(header) => header.decode(bytes),
            Self::Png(header) => header.decode(),
            Self::WebP(header) => header.decode(),
            Self::Gif(header) => header.decode(bytes),
            Self::Bmp(header) => header.decode(bytes),
        }
    }

    /// GIF and BMP have no place for it that Pillow would look at.
    fn orientation(&mut self) -> Result<Orientation, DecodeError> {
        match self {
            Self::Jpeg(header) => header.orientation(),
            Self::Png(header) => header.orientation(),
            Self::WebP(header) => header.orientation(),
            Self::Gif(_) | Self::Bmp(_) => Ok(Orientation::default()),
        }
    }
}
