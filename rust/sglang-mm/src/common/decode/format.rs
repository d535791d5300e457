//! The formats that are decoded, by the names that error messages give them.
//!
//! Invariant: depends on no other module, so that errors and the sniffer can both use it.

use std::fmt;

/// The supported formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JPEG, also inside MPO.
    Jpeg,
    /// PNG, also APNG.
    Png,
    /// WebP, still or animated.
    WebP,
    /// GIF 87a and 89a.
    Gif,
    /// Windows and OS/2 bitmaps with a file header.
    Bmp,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
        })
    }
}
