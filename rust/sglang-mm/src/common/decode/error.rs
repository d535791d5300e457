//! Why a picture was refused, in words that name the thing and the way out.
//!
//! Invariant: every message starts with `image decode`, and never quotes bytes of the picture.

use std::borrow::Cow;

use super::super::memory::OutOfMemory;
use super::format::Format;

/// The ways in which decoding can fail. All of them are refusals: no pixels come with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes belong to no format that is served.
    #[error("image decode: {detected} is not served: send a JPEG, PNG, WebP, GIF or BMP file")]
    UnknownFormat {
        /// What the bytes look like, with an article.
        detected: &'static str,
    },
    /// The header announces more pixels than the limits allow; nothing was allocated.
    #[error(
        "image decode: {width}x{height} is {} pixels, over the cap of {max_pixels}; \
         raise the setting `max_pixels` (`max_image_pixels` of a model family) if such pictures are expected",
        u128::from(*width) * u128::from(*height)
    )]
    TooManyPixels {
        /// Width in the header.
        width: u64,
        /// Height in the header.
        height: u64,
        /// The cap in force.
        max_pixels: u64,
    },
    /// The system refused the memory that the picture needs.
    #[error("image decode: the picture needs more memory than there is")]
    OutOfMemory,
    /// Samples that cannot be brought to 8 bits without choosing a scale for the caller.
    #[error("image decode: unsupported color: {format} with a bit depth of {bits}; send at most 8")]
    UnsupportedColor {
        /// The file's format.
        format: Format,
        /// Bits of a sample.
        bits: u8,
    },
    /// A variant of the format that is not served.
    #[error("image decode: unsupported {format} file: {feature}")]
    Unsupported {
        /// The file's format.
        format: Format,
        /// The variant.
        feature: Cow<'static, str>,
    },
    /// The bytes end too early.
    #[error("image decode: {format} file is truncated: it ends inside {inside}")]
    Truncated {
        /// The file's format.
        format: Format,
        /// The part that is cut.
        inside: &'static str,
    },
    /// The bytes contradict the format.
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
