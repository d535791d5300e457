//! Transposes an image by its EXIF orientation, one of eight.
//!
//! Invariant: pixels are moved, never changed.

use super::super::memory::{OutOfMemory, zeroed};
use super::pixels::RgbImage;
use crate::common::Size;

/// How to read the stored image to get the upright one: the EXIF values `1` to `8`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Orientation {
    /// Rows of the upright image are columns of the stored one. The other two fields then tell from
    /// which edges of the stored image to read.
    swapped: bool,
    from_right: bool,
    from_bottom: bool,
}

impl Orientation {
    /// The orientation for a tag's value. A missing tag or an unknown value means upright.
    pub(super) fn from_tag(value: Option<f64>) -> Self {
        let orientation = |swapped, from_right, from_bottom| Self {
            swapped,
            from_right,
            from_bottom,
        };
        match value {
            Some(2.0) => orientation(false, true, false),
            Some(3.0) => orientation(false, true, true),
            Some(4.0) => orientation(false, false, true),
            Some(5.0) => orientation(true, false, false),
            Some(6.0) => orientation(true, false, true),
            Some(7.0) => orientation(true, true, true),
            Some(8.0) => orientation(true, true, false),
            _ => Self::default(),
        }
    }

    /// The size of the upright image.
    pub(super) fn upright_size(self, size: Size) -> Size {
        if self.swapped {
            Size {
                width: size.height,
                height: size.width,
            }
        } else {
            size
        }
    }

    /// The upright image. Only orientations that swap the sides allocate a second image.
    pub(super) fn upright(self, mut image: RgbImage) -> Result<RgbImage, OutOfMemory> {
        if self.swapped {
            return self.swap(&image);
        }
        let row_bytes = image.width * 3;
        let pixels = image.pixels.as_mut_slice();
        match (self.from_right, self.from_bottom) {
            (false, false) => {}
            (true, true) => pixels.as_chunks_mut::<3>().0.reverse(),
            (true, false) => {
                for row in pixels.chunks_exact_mut(row_bytes) {
                    row.as_chunks_mut::<3>().0.reverse();
                }
            }
            (false, true) => {
                let (upper, lower) = pixels.split_at_mut(image.height / 2 * row_bytes);
                let upper = upper.chunks_exact_mut(row_bytes);
                for (upper, lower) in upper.zip(lower.rchunks_exact_mut(row_bytes)) {
                    upper.swap_with_slice(lower);
                }
            }
        }
        Ok(image)
    }

    /// Works in square tiles: reading whole columns would touch a new cache line for every pixel.
    fn swap(self, stored: &RgbImage) -> Result<RgbImage, OutOfMemory> {
        const TILE: usize = 32;
        let (height, width) = (stored.width, stored.height);
        let from = stored.pixels.as_chunks::<3>().0;
        let mut pixels = zeroed(stored.pixels.len())?;
        let to = pixels.as_chunks_mut::<3>().0;
        for top in (0..height).step_by(TILE) {
            for left in (0..width).step_by(TILE) {
                for y in top..height.min(top + TILE) {
                    let column = if self.from_right { height - 1 - y } else { y };
                    for x in left..width.min(left + TILE) {
                        let row = if self.from_bottom { width - 1 - x } else { x };
                        to[y * width + x] = from[row * stored.width + column];
                    }
                }
            }
        }
        Ok(RgbImage {
            height,
            width,
            pixels,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected shades of the upright image, row by row, for the stored image `1 2 3 / 4 5 6`.
    #[test]
    fn each_tag_value_transposes_as_exif_defines() {
        let rows: &[(f64, &[&[u8]])] = &[
            (1.0, &[&[1, 2, 3], &[4, 5, 6]]),
            (2.0, &[&[3, 2, 1], &[6, 5, 4]]),
            (3.0, &[&[6, 5, 4], &[3, 2, 1]]),
            (4.0, &[&[4, 5, 6], &[1, 2, 3]]),
            (5.0, &[&[1, 4], &[2, 5], &[3, 6]]),
            (6.0, &[&[4, 1], &[5, 2], &[6, 3]]),
            (7.0, &[&[6, 3], &[5, 2], &[4, 1]]),
            (8.0, &[&[3, 6], &[2, 5], &[1, 4]]),
            (0.0, &[&[1, 2, 3], &[4, 5, 6]]),
            (9.0, &[&[1, 2, 3], &[4, 5, 6]]),
            (6.5, &[&[1, 2, 3], &[4, 5, 6]]),
            (262.0, &[&[1, 2, 3], &[4, 5, 6]]),
            (-6.0, &[&[1, 2, 3], &[4, 5, 6]]),
            (f64::NAN, &[&[1, 2, 3], &[4, 5, 6]]),
        ];
        for (tag, expected) in rows {
            let stored = RgbImage {
                height: 2,
                width: 3,
                pixels: (1..=6).flat_map(|shade| [shade; 3]).collect(),
            };
            let orientation = Orientation::from_tag(Some(*tag));
            let size = orientation.upright_size(Size {
                width: 3,
                height: 2,
            });
            let upright = orientation.upright(stored).unwrap();
            let shades: Vec<_> = upright.pixels.chunks(3).map(|pixel| pixel[0]).collect();
            assert_eq!(shades, expected.concat(), "{tag}");
            let expected_size = (expected.len(), expected[0].len());
            assert_eq!((upright.height, upright.width), expected_size, "{tag}");
            assert_eq!((size.height, size.width), expected_size, "{tag}");
        }
    }

    #[test]
    fn an_orientation_and_its_inverse_restore_the_image() {
        // Wider and higher than a tile, and not a multiple of one.
        let stored = RgbImage {
            height: 67,
            width: 45,
            pixels: (0..67 * 45 * 3)
                .map(|at: usize| (at * at % 251) as u8)
                .collect(),
        };
        let transposed = |tag: u8, image| {
            Orientation::from_tag(Some(tag.into()))
                .upright(image)
                .unwrap()
        };
        for (tag, back) in [(2, 2), (3, 3), (4, 4), (5, 5), (6, 8), (7, 7), (8, 6)] {
            let upright = transposed(tag, stored.clone());
            assert_ne!(upright, stored, "{tag}");
            let restored = transposed(back, upright);
            assert_eq!(restored, stored, "{tag}");
        }
    }
}
