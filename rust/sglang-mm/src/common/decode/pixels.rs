//! Types shared by all decoders: the image they return, options and limits, palettes, packed samples.

use super::super::{
    Size,
    memory::{OutOfMemory, zeroed},
};
use super::error::DecodeError;
use super::format::Format;

/// An RGB image of 8-bit samples, row by row: `pixels.len() == height * width * 3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RgbImage {
    /// Number of rows.
    pub height: usize,
    /// Pixels per row.
    pub width: usize,
    /// The samples in the order height, width, channel; contiguous.
    pub pixels: Vec<u8>,
}

impl RgbImage {
    /// Its height and width.
    #[must_use]
    pub fn size(&self) -> Size {
        Size {
            height: self.height,
            width: self.width,
        }
    }
}

/// Decoding options. The default is what Pillow's `convert("RGB")` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// The image size above which a file is refused.
    pub limits: DecodeLimits,
    /// Transpose the image by its EXIF orientation (else by its XMP orientation), as Pillow's
    /// `ImageOps.exif_transpose` does.
    pub exif_transpose: bool,
}

/// The size limit that every decoder checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// The largest number of pixels (`width * height`) that a header may declare.
    pub max_pixels: u64,
}

impl DecodeLimits {
    /// Pillow's limit, above which it refuses an image as a decompression bomb.
    pub const PILLOW: Self = Self {
        max_pixels: 178_956_970,
    };

    /// The limit `max_pixels`, or Pillow's limit if that is `None`.
    #[must_use]
    pub fn at_most(max_pixels: Option<u64>) -> Self {
        max_pixels.map_or(Self::PILLOW, |max_pixels| Self { max_pixels })
    }
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self::PILLOW
    }
}

/// Makes a size from header fields, and allocates images of that size.
impl Size {
    /// The size in a header, unless it is empty or above the limits. Its products cannot overflow.
    pub(super) fn checked(
        format: Format,
        width: u64,
        height: u64,
        limits: DecodeLimits,
    ) -> Result<Self, DecodeError> {
        if width == 0 || height == 0 {
            return Err(DecodeError::corrupt(format, "the header says it is empty"));
        }
        let pixels = width.checked_mul(height);
        // Four bytes per pixel must fit `isize`, even if `max_pixels` allows more.
        let countable = pixels.is_some_and(|pixels| pixels <= isize::MAX as u64 / 4);
        match (countable, pixels) {
            (true, Some(pixels)) if pixels <= limits.max_pixels => Ok(Self {
                width: width as usize,
                height: height as usize,
            }),
            _ => Err(DecodeError::TooManyPixels {
                width,
                height,
                max_pixels: limits.max_pixels,
            }),
        }
    }

    pub(super) fn pixels(self) -> usize {
        self.width * self.height
    }

    /// An image of one colour.
    pub(super) fn filled(self, rgb: [u8; 3]) -> Result<RgbImage, OutOfMemory> {
        let mut pixels = zeroed(self.pixels() * 3)?;
        // The memory is zeroed, so it is black already. Writing it would only touch its pages.
        if rgb != [0; 3] {
            pixels.as_chunks_mut().0.fill(rgb);
        }
        Ok(RgbImage {
            height: self.height,
            width: self.width,
            pixels,
        })
    }
}

/// 256 colours. Entries missing from the file are black, as in Pillow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Palette(pub(super) [[u8; 3]; 256]);

impl Palette {
    pub(super) const BLACK: Self = Self([[0; 3]; 256]);

    /// Every index is its own shade of grey.
    pub(super) fn grey() -> Self {
        Self(std::array::from_fn(|index| [index as u8; 3]))
    }

    /// The whole entries in `bytes`, each converted to RGB by `entry`. `None` if there are more than 256.
    pub(super) fn from_entries<const N: usize>(
        bytes: &[u8],
        entry: impl Fn([u8; N]) -> [u8; 3],
    ) -> Option<Self> {
        let (entries, _) = bytes.as_chunks::<N>();
        let mut palette = Self::BLACK;
        for (colour, bytes) in palette.0.get_mut(..entries.len())?.iter_mut().zip(entries) {
            *colour = entry(*bytes);
        }
        Some(palette)
    }

    /// Writes the colours of `indices` to `rgb`.
    pub(super) fn paint(&self, indices: &[u8], rgb: &mut [u8]) {
        let (out, _) = rgb.as_chunks_mut::<3>();
        for (pixel, &index) in out.iter_mut().zip(indices) {
            *pixel = self.0[usize::from(index)];
        }
    }
}

/// Unpacks samples of `bits` bits (1, 2, 4 or 8) from `row`, most significant first.
pub(super) fn unpack_bits(row: &[u8], bits: usize, samples: &mut [u8]) {
    let mask = (1u16 << bits) as u8;
    let mask = mask.wrapping_sub(1);
    for (index, sample) in samples.iter_mut().enumerate() {
        let bit = index * bits;
        *sample = (row[bit / 8] >> (8 - bits - bit % 8)) & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_above_the_limit_are_refused() {
        let limits = DecodeLimits::default();
        let rows: &[(&str, u64, u64, bool)] = &[
            ("at the limit", limits.max_pixels, 1, true),
            ("one over", limits.max_pixels + 1, 1, false),
            ("product overflows", u64::MAX, u64::MAX, false),
            ("empty", 0, 5, false),
        ];
        for (name, width, height, fits) in rows {
            let size = Size::checked(Format::Png, *width, *height, limits);
            assert_eq!(size.is_ok(), *fits, "{name}");
        }
        let message = Size::checked(Format::Png, 20_000, 10_000, limits)
            .unwrap_err()
            .to_string();
        assert_eq!(
            message,
            "image decode: 20000x10000 is 200000000 pixels, over the cap of 178956970; \
             raise the setting `max_pixels` (`max_image_pixels` of a model family) if such images are expected"
        );
    }

    #[test]
    fn missing_palette_entries_are_black() {
        let palette = Palette::from_entries(&[1, 2, 3, 9], |rgb: [u8; 3]| rgb).unwrap();
        assert_eq!(palette.0[0], [1, 2, 3]);
        assert_eq!(palette.0[1], [0, 0, 0], "a partial entry is ignored");
        assert!(Palette::from_entries(&[0; 257 * 3], |rgb: [u8; 3]| rgb).is_none());
    }

    #[test]
    fn samples_are_unpacked_most_significant_first() {
        let rows: &[(&str, usize, &[u8])] = &[
            ("1 bit", 1, &[1, 0, 1, 1, 0, 0, 0, 1]),
            ("2 bits", 2, &[2, 3, 0, 1]),
            ("4 bits", 4, &[11, 1]),
            ("8 bits", 8, &[0b1011_0001]),
        ];
        for (name, bits, expected) in rows {
            let mut samples = vec![0; expected.len()];
            unpack_bits(&[0b1011_0001], *bits, &mut samples);
            assert_eq!(&samples, expected, "{name}");
        }
    }
}
