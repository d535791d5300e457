//! Turn a picture as its EXIF orientation asks: by the eight ways that the tag can name.
//!
//! Invariant: pixels change their places and nothing else.

use super::super::memory::{OutOfMemory, zeroed};
use super::pixels::RgbImage;
use crate::common::Size;

/// Where the pixels of the upright picture lie in the stored one: `1` to `8` of EXIF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Orientation {
    /// Rows of the one are columns of the other. The stored picture is read with the sides swapped
    /// first, and then from the edges that the other two fields name.
    swapped: bool,
    from_right: bool,
    from_bottom: bool,
}

impl Orientation {
    /// The meaning of the tag's value; no tag, or a value without a meaning, changes nothing.
    pub(super) fn of_tag(value: Option<f64>) -> Self {
        let way = |swapped, from_right, from_bottom| Self {
            swapped,
            from_right,
            from_bottom,
        };
        match value {
            Some(2.0) => way(false, true, false),
            Some(3.0) => way(false, true, true),
            Some(4.0) => way(false, false, true),
            Some(5.0) => way(true, false, false),
            Some(6.0) => way(true, false, true),
            Some(7.0) => way(true, true, true),
            Some(8.0) => way(true, true, false),
            _ => Self::default(),
        }
    }

    /// The size of the upright picture.
    pub(super) fn of_size(self, size: Size) -> Size {
        if self.swapped {
            Size {
                width: size.height,
                height: size.width,
            }
        } else {
            size
        }
    }

    /// The upright picture. Only a swap of the sides needs room for a second one.
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

    /// In square tiles: whole columns would touch a new cache line with every pixel.
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

    /// Shades of the upright picture, row by row, if `1 2 3 / 4 5 6` is stored.
    #[test]
    fn the_tag_has_eight_meanings() {
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
            let orientation = Orientation::of_tag(Some(*tag));
            let size = orientation.of_size(Size {
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
    fn turning_there_and_back_changes_nothing() {
        // Wider and higher than a tile, and no multiple of one.
        let stored = RgbImage {
            height: 67,
            width: 45,
            pixels: (0..67 * 45 * 3)
                .map(|at: usize| (at * at % 251) as u8)
                .collect(),
        };
        let turn = |tag: u8, image| {
            Orientation::of_tag(Some(tag.into()))
                .upright(image)
                .unwrap()
        };
        for (tag, back) in [(2, 2), (3, 3), (4, 4), (5, 5), (6, 8), (7, 7), (8, 6)] {
            let turned = turn(tag, stored.clone());
            assert_ne!(turned, stored, "{tag}");
            let again = turn(back, turned);
            assert_eq!(again, stored, "{tag}");
        }
    }
}
