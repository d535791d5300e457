//! Scales an image by a fraction that a request gives, and decodes a file to that size.
//!
//! The fraction applies to the longer side. The cap limits the *growth* of that side and never
//! shrinks an image that is already above the cap.
//!
//! Invariant: if both sides of an image are positive, both sides of the scaled image are too.

use super::Size;
use super::decode::{DecodeError, DecodeOptions, RgbImage, decode_rgb_with};
use super::resize::{Filter, PassOrder, Resample, ResizeError, resize_rgb};

/// The fraction does not give a usable size.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RescaleError {
    /// Zero, negative, infinite or not a number.
    #[error("rescale fraction must be finite and positive, got {0}")]
    Fraction(f64),
    /// The scaled image would exceed the address space.
    #[error("rescaling an image {from} by {fraction} gives more pixels than can be addressed")]
    TooLarge {
        /// The size before scaling.
        from: Size,
        /// The requested fraction.
        fraction: f64,
    },
}

/// Checks the fraction alone, before the size is known.
pub(crate) fn check_fraction(fraction: Option<f64>) -> Result<(), RescaleError> {
    match fraction {
        Some(fraction) if !(fraction.is_finite() && fraction > 0.0) => {
            Err(RescaleError::Fraction(fraction))
        }
        _ => Ok(()),
    }
}

/// `size` scaled by `fraction`. The longer side grows to `cap` at most.
///
/// Halves are rounded up. Without a fraction the size does not change.
///
/// # Errors
///
/// A fraction that is not finite and positive, or a size beyond the address space.
pub fn scaled_dims(
    size: Size,
    fraction: Option<f64>,
    cap: Option<i64>,
) -> Result<Size, RescaleError> {
    check_fraction(fraction)?;
    let Some(fraction) = fraction else {
        return Ok(size);
    };
    let longer = size.height.max(size.width) as f64;
    if longer == 0.0 {
        return Ok(size);
    }
    let mut target = longer * fraction;
    if let Some(cap) = cap {
        target = target.min((cap as f64).max(longer));
    }
    let ratio = target / longer;
    #[expect(
        clippy::float_cmp,
        reason = "only a ratio of exactly one keeps the size"
    )]
    if ratio == 1.0 {
        return Ok(size);
    }
    let side = |side: usize| ((side as f64 * ratio + 0.5).floor() as usize).max(1);
    let scaled = Size {
        height: side(size.height),
        width: side(size.width),
    };
    // `as` saturates, so a side above `usize::MAX` fails this check too.
    match scaled.rgb_len() {
        Some(_) => Ok(scaled),
        None => Err(RescaleError::TooLarge {
            from: size,
            fraction,
        }),
    }
}

/// Why a file could not be decoded and scaled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeRescaleError {
    /// Decoding failed.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The fraction or the scaled size is invalid.
    #[error(transparent)]
    Rescale(#[from] RescaleError),
    /// The resize failed.
    #[error(transparent)]
    Resize(#[from] ResizeError),
}

/// Decodes `file` and resizes it to the size of [`scaled_dims`], with Pillow's Lanczos filter in the
/// pass order of Pillow 13. An image that keeps its size is not resampled.
///
/// # Errors
///
/// The errors of decoding, of [`scaled_dims`] and of the resize.
pub fn decode_rescale(
    file: &[u8],
    options: &DecodeOptions,
    fraction: Option<f64>,
    cap: Option<i64>,
) -> Result<RgbImage, DecodeRescaleError> {
    check_fraction(fraction)?;
    let mut image = decode_rgb_with(file, options)?;
    let from = image.size();
    let to = scaled_dims(from, fraction, cap)?;
    if to != from {
        let lanczos = Resample::Pil(Filter::Lanczos, PassOrder::default());
        image = RgbImage {
            height: to.height,
            width: to.width,
            pixels: resize_rgb(&image.pixels, from, to, lanczos)?,
        };
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        (width, height): (usize, usize),
        fraction: Option<f64>,
        cap: Option<i64>,
    ) -> Result<(usize, usize), RescaleError> {
        scaled_dims(Size { height, width }, fraction, cap).map(|size| (size.width, size.height))
    }

    #[test]
    fn sizes_are_scaled_and_capped() {
        const FAR: usize = (1 << 60) + 1;
        #[rustfmt::skip]
        let cases = [
            ("no fraction",                 (80, 60),     None,      Some(1),    (80, 60)),
            ("half",                        (80, 60),     Some(0.5), None,       (40, 30)),
            ("double",                      (80, 60),     Some(2.0), None,       (160, 120)),
            ("growth is capped",            (80, 60),     Some(2.0), Some(120),  (120, 90)),
            ("the cap does not shrink",     (80, 60),     Some(0.9), Some(40),   (72, 54)),
            ("no growth above the cap",     (80, 60),     Some(2.0), Some(40),   (80, 60)),
            ("a negative cap: no shrinking",(80, 60),     Some(2.0), Some(-1),   (80, 60)),
            ("never below one pixel",       (3, 1),       Some(0.1), None,       (1, 1)),
            ("full HD capped",              (1920, 1080), Some(2.0), Some(2048), (2048, 1152)),
            ("a half rounds up",            (5, 1),       Some(0.5), None,       (3, 1)),
            ("exactly one",                 (7, 5),       Some(1.0), None,       (7, 5)),
            ("exactly one, beyond f64",    (FAR, 1),   Some(1.0), None,       (FAR, 1)),
            ("no pixels",                   (0, 0),       Some(2.0), None,       (0, 0)),
        ];
        for (name, size, fraction, cap, expected) in cases {
            assert_eq!(Ok(expected), check(size, fraction, cap), "{name}");
        }
    }

    /// A BMP file of 4 by 2 pixels whose columns go from dark to light.
    fn ramp() -> Vec<u8> {
        let header = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x04\0\0\0\x02\0\0\0\x01\0\x18\0";
        let row: Vec<u8> = [0, 80, 160, 240]
            .iter()
            .flat_map(|&shade| [shade; 3])
            .collect();
        [header.as_slice(), &[0; 24], &row, &row].concat()
    }

    #[test]
    fn files_are_decoded_and_scaled() {
        let scaled = |fraction, cap| {
            let image = decode_rescale(&ramp(), &DecodeOptions::default(), fraction, cap);
            image.map(|image| (image.height, image.width, image.pixels))
        };
        let (height, width, pixels) = scaled(None, None).unwrap();
        assert_eq!((height, width), (2, 4), "no fraction");
        assert_eq!(
            scaled(Some(2.0), Some(3)),
            Ok((2, 4, pixels.clone())),
            "capped"
        );

        let from = Size { height, width };
        let to = Size {
            height: 4,
            width: 8,
        };
        let lanczos = Resample::Pil(Filter::Lanczos, PassOrder::Pillow13);
        let expected = resize_rgb(&pixels, from, to, lanczos).unwrap();
        assert_eq!(scaled(Some(2.0), None), Ok((4, 8, expected)), "doubled");
    }

    #[test]
    fn errors_of_each_step_are_returned() {
        let error = |file: &[u8], fraction| {
            let image = decode_rescale(file, &DecodeOptions::default(), Some(fraction), None);
            image.unwrap_err()
        };
        assert!(matches!(error(b"text", 2.0), DecodeRescaleError::Decode(_)));
        for file in [ramp(), b"text".to_vec()] {
            assert!(matches!(
                error(&file, f64::NAN),
                DecodeRescaleError::Rescale(_)
            ));
        }
        assert!(matches!(error(&ramp(), 4e8), DecodeRescaleError::Resize(_)));
    }

    #[test]
    fn invalid_fractions_are_refused() {
        for fraction in [0.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let error = check((80, 60), Some(fraction), None).unwrap_err();
            assert!(matches!(error, RescaleError::Fraction(_)), "{fraction}");
        }
        for fraction in [1e12, 1e300, f64::MAX] {
            let error = check((80, 60), Some(fraction), None).unwrap_err();
            assert!(matches!(error, RescaleError::TooLarge { .. }), "{fraction}");
        }
    }
}
