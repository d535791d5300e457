//! Computes the size to which an image is resized before it is cut into patches.
//!
//! Each side is rounded to a multiple of the factor. If the area is outside the pixel limits,
//! both sides are scaled by the same ratio to bring it inside. This is the rule of Hugging
//! Face transformers since 5.24, with the same `f64` operations. As in transformers, a side does
//! not shrink below one factor, so a thin image may exceed the upper limit.
//!
//! Invariant: no side of a returned size is 0.

use std::num::NonZeroUsize;

use crate::common::Size;

/// The maximum ratio of the longer to the shorter side.
const MAX_ASPECT_RATIO: f64 = 200.0;

/// The rule gives no usable size.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SmartResizeError {
    /// The image has no pixels.
    #[error("smart_resize: empty image, {0}")]
    Empty(Size),
    /// The ratio of the longer to the shorter side exceeds 200.
    #[error("absolute aspect ratio must be smaller than {MAX_ASPECT_RATIO}, got {0:?}")]
    AspectRatio(f64),
    /// With these limits the result has no pixels, or exceeds the address space.
    #[error(
        "smart_resize: {size} degenerates to {sides:?} times {factor} pixels: \
         change the pixel limits, which are {min_pixels} to {max_pixels}"
    )]
    Degenerate {
        /// Size of the image.
        size: Size,
        /// Height and width of the result in multiples of the factor.
        sides: [usize; 2],
        /// Each side of the result is a multiple of it.
        factor: usize,
        /// Lower limit of the area.
        min_pixels: usize,
        /// Upper limit of the area.
        max_pixels: usize,
    },
}

/// Computes the target size of an image of `size`. Its sides are multiples of `factor` pixels;
/// its area is between `min_pixels` and `max_pixels` if the image's shape allows it.
///
/// # Errors
///
/// If the image is empty, its longer side is more than 200 times its shorter side, or the
/// limits give a result without pixels or one that exceeds the address space.
pub fn smart_resize(
    size: Size,
    factor: NonZeroUsize,
    min_pixels: usize,
    max_pixels: usize,
) -> Result<Size, SmartResizeError> {
    if size.is_empty() {
        return Err(SmartResizeError::Empty(size));
    }
    let [height, width] = [size.height as f64, size.width as f64];
    let ratio = height.max(width) / height.min(width);
    if ratio > MAX_ASPECT_RATIO {
        return Err(SmartResizeError::AspectRatio(ratio));
    }
    let factor = factor.get();
    let unit = factor as f64;
    let both = |side: fn(f64) -> f64, scaled: [f64; 2]| scaled.map(|x| side(x / unit) as usize);
    let area = |sides: [usize; 2]| {
        let [height, width] = sides.map(|side| side as u128 * factor as u128);
        height.saturating_mul(width)
    };
    let pixels = (size.height as u128 * size.width as u128) as f64;

    let mut sides = both(f64::round_ties_even, [height, width]);
    if area(sides) > max_pixels as u128 {
        let beta = (pixels / max_pixels as f64).sqrt();
        sides = both(f64::floor, [height / beta, width / beta]).map(|side| side.max(1));
    } else if area(sides) < min_pixels as u128 {
        let beta = (min_pixels as f64 / pixels).sqrt();
        sides = both(f64::ceil, [height * beta, width * beta]);
    }
    // The code of Hugging Face divides by the upper limit, so it would fail for a limit of 0.
    in_pixels(sides, factor)
        .filter(|_| max_pixels > 0)
        .ok_or(SmartResizeError::Degenerate {
            size,
            sides,
            factor,
            min_pixels,
            max_pixels,
        })
}

fn in_pixels([height, width]: [usize; 2], factor: usize) -> Option<Size> {
    let size = Size {
        height: height.checked_mul(factor)?,
        width: width.checked_mul(factor)?,
    };
    (!size.is_empty() && size.rgb_len().is_some()).then_some(size)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::{SmartResizeError, smart_resize};
    use crate::common::Size;

    fn check(
        (height, width): (usize, usize),
        factor: usize,
        min_pixels: usize,
        max_pixels: usize,
    ) -> Result<(usize, usize), SmartResizeError> {
        let factor = NonZeroUsize::new(factor).unwrap();
        smart_resize(Size { height, width }, factor, min_pixels, max_pixels)
            .map(|size| (size.height, size.width))
    }

    #[test]
    fn sizes_follow_the_rule() {
        #[rustfmt::skip]
        let cases = [
            ("photo",                    (1365, 2048),  28, 3136,  12_845_056, (1372, 2044)),
            ("small square",             (100, 100),    28, 3136,  12_845_056, (112, 112)),
            ("shrunk to the limit",      (3000, 4000),  28, 3136,  1_003_520,  (840, 1148)),
            ("grown to the limit",       (20, 20),      28, 3136,  12_845_056, (56, 56)),
            ("factor of 32",             (1365, 2048),  32, 65536, 16_777_216, (1376, 2048)),
            ("half rounds to even, up",  (4000, 48),    32, 4,     1 << 30,    (4000, 64)),
            ("half rounds to even, down", (14, 400),    28, 3136,  12_845_056, (28, 308)),
            ("under half the factor",    (268, 2),      28, 3136,  12_845_056, (672, 28)),
            ("rounded to 0, then grown", (9, 217),      28, 3136,  12_845_056, (28, 280)),
            ("thin, tight limit",        (10, 2000),    28, 3136,  3136,       (28, 812)),
            ("thin and long",            (8, 1500),     28, 3136,  12_845_056, (28, 784)),
            ("thin, exceeds the limit",  (28, 5600),    28, 3136,  3136,       (28, 784 )),
            ("exactly 200 to 1",         (1, 200),      28, 3136,  1_003_520,  (28, 812)),
            ("thin, 20 tokens",          (31, 639),     28, 3136,  15_680,     (28, 560)),
        ];
        for (name, size, factor, min, max, expected) in cases {
            assert_eq!(Ok(expected), check(size, factor, min, max), "{name}");
        }
    }

    #[test]
    fn invalid_sizes_and_limits_are_refused() {
        #[rustfmt::skip]
        let cases = [
            ("height 0", (0, 5), 28, 3136, 12_845_056, "smart_resize: empty image"),
            ("width 0", (5, 0), 28, 3136, 12_845_056, "smart_resize: empty image"),
            ("201 to 1", (1, 201), 28, 3136, 12_845_056, "aspect ratio must be smaller than 200, got 201.0"),
            ("1000 to 1", (10_000, 10), 28, 3136, 12_845_056, "aspect ratio must be smaller than 200, got 1000.0"),
            ("just over 200 to 1", (2601, 13), 28, 3136, 12_845_056,
                "aspect ratio must be smaller than 200, got 200.07692307692307"),
            ("lower limit 0", (5, 5), 28, 0, 12_845_056, "degenerates to [0, 0] times 28"),
            ("upper limit 0", (50, 50), 28, 0, 0, "change the pixel limits, which are 0 to 0"),
            ("grown beyond the address space", (1, 1), 28, usize::MAX, usize::MAX, "degenerates"),
            ("area overflows", (usize::MAX, usize::MAX), 1, 1, usize::MAX, "degenerates"),
        ];
        for (name, size, factor, min, max, expected) in cases {
            let error = check(size, factor, min, max).expect_err(name).to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
