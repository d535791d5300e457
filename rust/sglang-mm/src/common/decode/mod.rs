//! Decodes image files: bytes in, 8-bit RGB out, byte for byte what Pillow's `convert("RGB")` gives.
//!
//! The format is detected from the content. Only the first frame of an animation is decoded. Alpha
//! is dropped and not composited, and colour profiles are ignored. Samples wider than 8 bits are
//! refused. EXIF orientation is ignored unless [`DecodeOptions`] asks for it. A file that Pillow
//! refuses as truncated or damaged is refused here too.
//!
//! Differences from Pillow 13.0. Pillow decodes the files of the first four items, and fails on
//! those of the last two:
//!
//! - 16-bit samples are refused. Pillow clips greys to 255 and keeps the high byte of the others,
//!   and a caller cannot choose between the two.
//! - Lossless JPEG (SOF3) is refused: it is used in medical archives, and libjpeg-turbo 2 cannot
//!   decode it.
//! - A JPEG of more than 100 scans is refused: a scan takes a dozen bytes in the file but costs a
//!   pass over the whole image.
//! - Formats other than the five are refused.
//! - A JPEG whose EXIF data gives the resolution as a single byte or an empty text is decoded:
//!   Pillow cannot open it.
//! - An image is transposed even if it has other EXIF tags that Pillow cannot write back after
//!   transposing.
//!
//! Everything else is equal: the pixels of every file, and the set of refused files.
//!
//! Memory: the file, and 3 bytes per output pixel. A JPEG of several scans takes 2 more bytes per
//! sample: up to 6 per pixel, or 3 where chroma is halved in both directions. A CMYK JPEG takes 4
//! bytes per pixel for its inks, and up to 8 more if it has several scans. A file of a few hundred
//! bytes can demand all of that, in Pillow as well. Lower the pixel limit where that is too much.
//!
//! Invariant: the size in the header is checked against [`DecodeLimits`] before any allocation that
//! grows with it. No input, however damaged, causes a panic.

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

/// Decodes `bytes` with the default options.
///
/// # Errors
/// The format is not supported, the file is damaged, or the image is larger than the limits allow.
pub fn decode_rgb(bytes: &[u8]) -> Result<RgbImage, DecodeError> {
    decode_rgb_with(bytes, &DecodeOptions::default())
}

/// Decodes `bytes` with `options`.
///
/// # Errors
/// As [`decode_rgb`]. With `exif_transpose`, also EXIF data that cannot be read.
pub fn decode_rgb_with(bytes: &[u8], options: &DecodeOptions) -> Result<RgbImage, DecodeError> {
    let mut header = Header::read(bytes, options.limits)?;
    let image = header.decode(bytes)?;
    if options.exif_transpose {
        return Ok(header.orientation()?.upright(image)?);
    }
    Ok(image)
}

/// Height and width of the image that [`decode_rgb`] returns, read from the headers alone.
///
/// # Errors
/// As [`decode_rgb`], as far as the headers show it. No limit applies, because nothing is allocated.
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

/// Height and width of the image that [`decode_rgb_with`] returns for the same options, read from
/// the headers alone.
///
/// # Errors
/// As [`decode_rgb_with`], as far as the headers show it.
pub fn dimensions_with(
    bytes: &[u8],
    options: &DecodeOptions,
) -> Result<(usize, usize), DecodeError> {
    let mut header = Header::read(bytes, options.limits)?;
    let mut size = header.size();
    if options.exif_transpose {
        size = header.orientation()?.upright_size(size);
    }
    Ok((size.height, size.width))
}

/// The parsed headers of a file of any supported format.
enum Header<'a> {
    Jpeg(jpeg::Header<'a>),
    Png(Box<png::Header<'a>>),
    WebP(Box<webp::Header<'a>>),
    Gif(gif::Header),
    Bmp(Box<bmp::Header>),
}

impl<'a> Header<'a> {
    fn read(bytes: &'a [u8], limits: DecodeLimits) -> Result<Self, DecodeError> {
        Ok(match sniff::supported(bytes)? {
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

    /// Pillow reads no orientation from GIF and BMP files.
    fn orientation(&mut self) -> Result<Orientation, DecodeError> {
        match self {
            Self::Jpeg(header) => header.orientation(),
            Self::Png(header) => header.orientation(),
            Self::WebP(header) => header.orientation(),
            Self::Gif(_) | Self::Bmp(_) => Ok(Orientation::default()),
        }
    }
}
