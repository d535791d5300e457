//! JPEG, decoded by libjpeg-turbo with its accurate transform and its smooth chroma upsampling.
//!
//! The markers up to the first scan are parsed here, for the size and the colour model. The rest is
//! one call into C. Images of four components are returned as stored and then converted to RGB as in
//! Pillow, which always assumes Adobe's inverted inks.

mod kernels;
mod libjpeg;
mod markers;

use super::error::DecodeError;
use super::pixels::RgbImage;

use markers::Model;

pub(super) use markers::Header;

impl Header<'_> {
    pub(super) fn decode(&self, bytes: &[u8]) -> Result<RgbImage, DecodeError> {
        let size = self.size();
        match self.model {
            Model::Rgb => Ok(RgbImage {
                height: size.height,
                width: size.width,
                pixels: libjpeg::decode(bytes, size, libjpeg::Channels::Rgb)?,
            }),
            Model::Cmyk => {
                let inks = libjpeg::decode(bytes, size, libjpeg::Channels::Cmyk)?;
                let mut image = size.filled([0; 3])?;
                let pixels = image.pixels.as_chunks_mut().0.iter_mut();
                for (rgb, inks) in pixels.zip(inks.as_chunks().0) {
                    *rgb = cmyk_to_rgb(*inks);
                }
                Ok(image)
            }
        }
    }
}

/// Converts inverted inks to RGB: each channel is `k`, less the share that its ink absorbs.
fn cmyk_to_rgb([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    let light = u32::from(k);
    [c, m, y].map(|ink| (light - divide_by_255(u32::from(!ink) * light)) as u8)
}

/// `value / 255` rounded to nearest, for products of two bytes.
fn divide_by_255(value: u32) -> u32 {
    let value = value + 128;
    (value + (value >> 8)) >> 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inks_are_converted_to_rgb() {
        let rows: &[(&str, [u8; 4], [u8; 3])] = &[
            ("no ink", [255, 255, 255, 255], [255, 255, 255]),
            ("all black", [255, 255, 255, 0], [0, 0, 0]),
            ("all cyan", [0, 255, 255, 255], [0, 255, 255]),
            ("half of each", [128, 128, 128, 128], [64, 64, 64]),
        ];
        for (name, inks, rgb) in rows {
            assert_eq!(cmyk_to_rgb(*inks), *rgb, "{name}");
        }
    }

    #[test]
    fn division_rounds_to_nearest() {
        for value in 0..=255 * 255 {
            let nearest = (f64::from(value) / 255.0).round() as u32;
            assert_eq!(divide_by_255(value), nearest, "{value}");
        }
    }
}
