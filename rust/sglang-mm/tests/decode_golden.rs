//! Every golden picture decodes to Pillow's bytes, or is refused where Pillow refuses it.
//!
//! The directory is `SGLANG_GOLDEN`, else the small set in the checkout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;
use sglang_mm_core::common::decode::{
    DecodeError, DecodeOptions, decode_rgb, decode_rgb_with, dimensions, dimensions_with,
};
use sha2::{Digest, Sha256};

/// Pillow clips 16-bit greys to 255 and halves the other 16-bit samples; neither is a scale that a
/// caller would choose, so the contract refuses them.
const WIDE_SAMPLES: &str = "unsupported color";

/// Pictures that Pillow decodes and we refuse, each with the words of the refusal.
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

/// What the oracle said about a picture.
#[derive(Debug)]
enum Expected {
    Pixels {
        height: usize,
        width: usize,
        sha256: String,
    },
    Refused,
    /// Decoded by Pillow, but of a format that is not served.
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
    let served = ["JPEG", "MPO", "PNG", "GIF", "BMP", "WEBP"];
    match (row["rgb_sha256"].as_str(), row["format"].as_str()) {
        (None, _) => Expected::Refused,
        (Some(_), Some(format)) if !served.contains(&format) => Expected::Foreign,
        (Some(sha256), _) => Expected::Pixels {
            height: row["rgb_shape"][0].as_u64().unwrap() as usize,
            width: row["rgb_shape"][1].as_u64().unwrap() as usize,
            sha256: sha256.to_owned(),
        },
    }
}

/// What is wrong with our answer, if anything is.
fn complaint(name: &str, bytes: &[u8], expected: &Expected) -> Option<String> {
    let result = decode_rgb(bytes);
    if let Some((_, words)) = EXCEPTIONS.iter().find(|(file, _)| *file == name) {
        return match result {
            Err(error) if error.to_string().contains(words) => None,
            other => Some(format!("is no exception: {:?}", other.err())),
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
                () if size != (*height, *width) => Some(format!("is {size:?}")),
                () if dimensions(bytes) != Ok(size) => Some("has other dimensions".to_owned()),
                () if digest != *sha256 => Some("has other pixels".to_owned()),
                () => None,
            }
        }
        (_, Ok(_)) => Some("should be refused".to_owned()),
        (_, Err(error)) => Some(error.to_string()),
    }
}

/// What is wrong with the size of the upright picture, if anything is.
fn complaint_about_orientation(bytes: &[u8]) -> Option<&'static str> {
    let options = DecodeOptions {
        exif_transpose: true,
        ..DecodeOptions::default()
    };
    let Ok(upright) = decode_rgb_with(bytes, &options) else {
        return decode_rgb(bytes).is_ok().then_some("cannot be turned");
    };
    let size = (upright.height, upright.width);
    let announced = dimensions_with(bytes, &options);
    (announced != Ok(size)).then_some("has other dimensions once it is upright")
}

/// The headers alone give the size that the pixels have, turned or not.
#[test]
fn golden_pictures_say_their_upright_size() {
    let directory = golden();
    let pictures = directory.join("images_open");
    let mut checked = 0;
    for name in expectations(&directory).keys() {
        let bytes = fs::read(pictures.join(name)).unwrap();
        assert_eq!(complaint_about_orientation(&bytes), None, "{name}");
        checked += 1;
    }
    assert!(checked > 0, "no picture in {}", directory.display());
}

#[test]
fn golden_pictures_decode_to_the_oracles_bytes() {
    let directory = golden();
    let pictures = directory.join("images_open");
    let mut checked = 0;
    let mut complaints = Vec::new();
    for (name, expected) in expectations(&directory) {
        let bytes = fs::read(pictures.join(&name)).unwrap();
        checked += 1;
        if let Some(complaint) = complaint(&name, &bytes, &expected) {
            complaints.push(format!("{name} {complaint}"));
        }
    }
    assert!(
        checked > 0,
        "no picture was checked in {}",
        directory.display()
    );
    assert!(
        complaints.is_empty(),
        "{checked} checked:\n{}",
        complaints.join("\n")
    );
}
