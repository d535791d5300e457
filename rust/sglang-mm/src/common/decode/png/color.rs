//! The pixel formats of PNG.

/// How a pixel is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Color {
    /// One sample of 1, 2, 4 or 8 bits.
    Grey { bits: usize },
    /// An index of 1, 2, 4 or 8 bits.
    Indexed { bits: usize },
    /// Two bytes: grey and alpha.
    GreyAlpha,
    /// Three bytes.
    Rgb,
    /// Four bytes.
    Rgba,
}

impl Color {
    /// Bits per pixel.
    pub(super) fn bits(self) -> usize {
        match self {
            Self::Grey { bits } | Self::Indexed { bits } => bits,
            Self::GreyAlpha => 16,
            Self::Rgb => 24,
            Self::Rgba => 32,
        }
    }
}

/// Converts the pixels of `row`, each of `N` bytes, by `rgb`.
pub(super) fn pick<const N: usize>(row: &[u8], out: &mut [u8], rgb: impl Fn([u8; N]) -> [u8; 3]) {
    for (out, pixel) in out.as_chunks_mut().0.iter_mut().zip(row.as_chunks().0) {
        *out = rgb(*pixel);
    }
}
