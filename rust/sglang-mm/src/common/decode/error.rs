//! The errors of decoding: why an image was refused, and what the sender can change.
//!
//! Invariant: every message starts with `image decode`, and no message quotes bytes of the file.

use std::borrow::Cow;

use super::super::memory::OutOfMemory;
use super::format::Format;

/// The ways in which decoding can fail. An error never comes with partial pixels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes match no supported format.
    #[error("image decode: {detected} is not supported: send a JPEG, PNG, WebP, GIF or BMP file")]
    UnknownFormat {
        /// What the bytes look like, with its article: `a TIFF file`.
        detected: &'static str,
    },
    /// The header declares more pixels than the limits allow. Nothing was allocated.
    #[error(
        "image decode: {width}x{height} is {} pixels, over the cap of {max_pixels}; \
         raise the setting `max_pixels` (`max_image_pixels` of a model family) if such images are expected",
        u128::from(*width) * u128::from(*height)
    )]
    TooManyPixels {
        /// Width in the header.
        width: u64,
        /// Height in the header.
        height: u64,
        /// The limit that applied.
        max_pixels: u64,
    },
    /// The system refused the memory that the image needs.
    #[error("image decode: not enough memory for the image")]
    OutOfMemory,
    /// Samples of more than 8 bits. They can be reduced to 8 bits in several ways, and only the caller
    /// can choose one.
    #[error("image decode: unsupported color: {format} with a bit depth of {bits}; send at most 8")]
    UnsupportedColor {
        /// The file's format.
        format: Format,
        /// Bits per sample.
        bits: u8,
    },
    /// A variant of the format that is not supported.
    #[error("image decode: unsupported {format} file: {feature}")]
    Unsupported {
        /// The file's format.
        format: Format,
        /// The variant.
        feature: Cow<'static, str>,
    },
    /// The file ends too early.
    #[error("image decode: {format} file is truncated: it ends inside {inside}")]
    Truncated {
        /// The file's format.
        format: Format,
        /// The part that is incomplete.
        inside: &'static str,
    },
    /// The file violates its format.
    #[error("image decode: {format} file is corrupt: {problem}")]
    Corrupt {
        /// The file's format.
        format: Format,
        /// What is wrong.
        problem: Cow<'static, str>,
    },
}

impl From<OutOfMemory> for DecodeError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl DecodeError {
    pub(super) fn unsupported(format: Format, feature: impl Into<Cow<'static, str>>) -> Self {
        Self::Unsupported {
            format,
            feature: feature.into(),
        }
    }

    pub(super) fn truncated(format: Format, inside: &'static str) -> Self {
        Self::Truncated { format, inside }
    }

    pub(super) fn corrupt(format: Format, problem: impl Into<Cow<'static, str>>) -> Self {
        Self::Corrupt {
            format,
            problem: problem.into(),
        }
    }
}
