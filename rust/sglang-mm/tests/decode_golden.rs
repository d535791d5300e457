//! Compares decoding with Pillow for every golden image: the same bytes, or a refusal if Pillow refuses.
//!
//! The images are in the folder `SGLANG_GOLDEN`, or by default in the small set of the checkout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;
use sglang_mm_core::common::decode::{
    DecodeError, DecodeOptions, decode_rgb, decode_rgb_with, dimensions, dimensions_with,
};
use sha2::{Digest, Sha256};

/// The error for 16-bit samples. Pillow clips greys to 255 and keeps the high byte of other samples. A
/// caller cannot choose between the two, so this crate refuses such images.
const WIDE_SAMPLES: &str = "unsupported color";

/// Images that Pillow decodes and this crate refuses, each with a part of the error text.
#[rustfmt::skip]
const EXCEPTIONS: &[(&str, &str)] = &[
    ("der_png_g16_i0_t0.png", WIDE_SAMPLES),
    ("der_png_g16_i0_t1.png", WIDE_SAMPLES),
    ("der_png_g16_i1_t0.png", WIDE_SAMPLES),
    ("der_png_g16_i1_t1.png", WIDE_SAMPLES),
    ("der_png_la16_i0.png", WIDE_SAMPLES),
    ("der_png_la16_i1.png", WIDE_SAMPLES),
    ("der_png_rgb16_i0_t0.png", WIDE_SAMPLES),
    ("der_png_rgb16_i0_t1.png", WIDE_SAMPLES),
    ("der_png_rgb16_i1_t0.png", WIDE_SAMPLES),
    ("der_png_rgb16_i1_t1.png", WIDE_SAMPLES),
    ("der_png_rgba16_i0.png", WIDE_SAMPLES),
    ("der_png_rgba16_i1.png", WIDE_SAMPLES),
    ("pil_apng-mode_16bit.png", WIDE_SAMPLES),
    ("pil_i_trns.png", WIDE_SAMPLES),
    ("pngsuite_basn6a16.png", WIDE_SAMPLES),
    ("pngsuite_ftbgn2c16.png", WIDE_SAMPLES),
    ("pngsuite_ftbwn0g16.png", WIDE_SAMPLES),
    ("pngsuite_ibasn0g16.png", WIDE_SAMPLES),
    ("pngsuite_ibasn2c16.png", WIDE_SAMPLES),
    ("pngsuite_ibasn4a16.png", WIDE_SAMPLES),
    ("pngsuite_ibasn6a16.png", WIDE_SAMPLES),
    ("pypng_basi0g16.png", WIDE_SAMPLES),
    ("pypng_basi2c16.png", WIDE_SAMPLES),
    ("pypng_basn0g16.png", WIDE_SAMPLES),
    ("pypng_basn2c16.png", WIDE_SAMPLES),
    ("pypng_basn4a16.png", WIDE_SAMPLES),
    ("pypng_basn6a16.png", WIDE_SAMPLES),
    ("testpng_gray-16-linear-tRNS.png", WIDE_SAMPLES),
    ("testpng_gray-alpha-16-sRGB.png", WIDE_SAMPLES),
    ("testpng_rgb-16-1.8-tRNS.png", WIDE_SAMPLES),
    ("testpng_rgb-16-linear-tRNS.png", WIDE_SAMPLES),
    ("testpng_rgb-16-sRGB-tRNS.png", WIDE_SAMPLES),
    ("testpng_rgb-alpha-16.png", WIDE_SAMPLES),
];

/// The result of Pillow for an image.
#[derive(Debug)]
enum Expected {
    Pixels {
        height: usize,
        width: usize,
        sha256: String,
    },
    Refused,
    /// Pillow decodes the image, but this crate does not support its format.
    Foreign,
}

fn golden() -> PathBuf {
    let small = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    env::var_os("SGLANG_GOLDEN").map_or_else(small, PathBuf::from)
}

fn expectations(directory: &Path) -> BTreeMap<String, Expected> {
    let lines = fs::read_to_string(directory.join("expected/decode.jsonl")).unwrap();
    lines
        .lines()
        .map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            (row["file"].as_str().unwrap().to_owned(), expected(&row))
        })
        .collect()
}

fn expected(row: &Value) -> Expected {
    let supported = ["JPEG", "MPO", "PNG", "GIF", "BMP", "WEBP"];
    match (row["rgb_sha256"].as_str(), row["format"].as_str()) {
        (None, _) => Expected::Refused,
        (Some(_), Some(format)) if !supported.contains(&format) => Expected::Foreign,
        (Some(sha256), _) => Expected::Pixels {
            height: row["rgb_shape"][0].as_u64().unwrap() as usize,
            width: row["rgb_shape"][1].as_u64().unwrap() as usize,
            sha256: sha256.to_owned(),
        },
    }
}

/// A description of the difference between `decode_rgb` and Pillow, or `None` if they agree.
fn decoding_difference(name: &str, bytes: &[u8], expected: &Expected) -> Option<String> {
    let result = decode_rgb(bytes);
    if let Some((_, words)) = EXCEPTIONS.iter().find(|(file, _)| *file == name) {
        return match result {
            Err(error) if error.to_string().contains(words) => None,
            other => Some(format!(
                "should be refused with {words:?}, got {:?}",
                other.err()
            )),
        };
    }
    match (expected, result) {
        (Expected::Refused, Err(_))
        | (Expected::Foreign, Err(DecodeError::UnknownFormat { .. })) => None,
        (
            Expected::Pixels {
                height,
                width,
                sha256,
            },
            Ok(image),
        ) => {
            let digest = Sha256::digest(&image.pixels);
            let digest = digest
                .iter()
                .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
            let size = (image.height, image.width);
            match () {
                () if size != (*height, *width) => Some(format!("has the wrong size {size:?}")),
                () if dimensions(bytes) != Ok(size) => {
                    Some("has another size in `dimensions`".to_owned())
                }
                () if digest != *sha256 => Some("has other pixels".to_owned()),
                () => None,
            }
        }
        (_, Ok(_)) => Some("should be refused".to_owned()),
        (_, Err(error)) => Some(error.to_string()),
    }
}

/// A description of the error if an image cannot be transposed, or if `dimensions_with` gives another
/// size than the transposed image has. `None` if both are correct.
fn orientation_error(bytes: &[u8]) -> Option<&'static str> {
    let options = DecodeOptions {
        exif_transpose: true,
        ..DecodeOptions::default()
    };
    let Ok(upright) = decode_rgb_with(bytes, &options) else {
        return decode_rgb(bytes).is_ok().then_some("cannot be transposed");
    };
    let size = (upright.height, upright.width);
    let from_headers = dimensions_with(bytes, &options);
    (from_headers != Ok(size)).then_some("has another size in `dimensions_with`")
}

/// The size from the headers is that of the decoded image, with its EXIF orientation applied.
#[test]
fn headers_give_the_size_of_the_upright_image() {
    let directory = golden();
    let images = directory.join("images_open");
    let mut checked = 0;
    for name in expectations(&directory).keys() {
        let bytes = fs::read(images.join(name)).unwrap();
        assert_eq!(orientation_error(&bytes), None, "{name}");
        checked += 1;
    }
    assert!(checked > 0, "no image in {}", directory.display());
}

#[test]
fn golden_images_decode_as_in_pillow() {
    let directory = golden();
    let images = directory.join("images_open");
    let mut checked = 0;
    let mut differences = Vec::new();
    for (name, expected) in expectations(&directory) {
        let bytes = fs::read(images.join(&name)).unwrap();
        checked += 1;
        if let Some(difference) = decoding_difference(&name, &bytes, &expected) {
            differences.push(format!("{name} {difference}"));
        }
    }
    assert!(checked > 0, "no image in {}", directory.display());
    assert!(
        differences.is_empty(),
        "{} of {checked} images differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}
