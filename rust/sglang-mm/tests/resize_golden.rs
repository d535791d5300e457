//! Compares resizes of every golden image with the bytes of Pillow, with both filters.
//!
//! The images and the expected digests for each target size are in the folder `SGLANG_GOLDEN`, or by
//! default in the small set of the checkout.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sglang_mm_core::common::{
    Size,
    decode::{RgbImage, decode_rgb},
    par,
    resize::{Filter, PassOrder, Resample, resize_rgb},
};
use sha2::{Digest, Sha256};

/// The key of a filter in the expectations.
const FILTERS: [(&str, Filter); 2] = [("bicubic", Filter::Bicubic), ("lanczos", Filter::Lanczos)];

fn golden() -> PathBuf {
    let small = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    env::var_os("SGLANG_GOLDEN").map_or_else(small, PathBuf::from)
}

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Parses a size in the form of the expectations, `WIDTHxHEIGHT`.
fn size(text: &str) -> Size {
    let (width, height) = text.split_once('x').expect("two sides");
    Size {
        height: height.parse().expect("a height"),
        width: width.parse().expect("a width"),
    }
}

/// The number of resizes that were compared for one image, and a description of each that differs.
/// Images that cannot be decoded are skipped, because `decode_golden.rs` tests decoding.
fn differences(directory: &Path, line: &Value) -> (usize, Vec<String>) {
    let file = line["file"].as_str().expect("a file name");
    let bytes = fs::read(directory.join("images_open").join(file)).expect(file);
    let Ok(RgbImage {
        height,
        width,
        pixels,
    }) = decode_rgb(&bytes)
    else {
        return (0, vec![]);
    };
    let from = Size { height, width };
    let mut compared = 0;
    let mut different = Vec::new();
    for (key, filter) in FILTERS {
        for (target, expected) in line[key].as_object().expect(key) {
            let how = Resample::Pil(filter, PassOrder::Pillow13);
            let resized = resize_rgb(&pixels, from, size(target), how).expect(file);
            compared += 1;
            if Some(sha256(&resized).as_str()) != expected.as_str() {
                different.push(format!("{file}: {key} {target}"));
            }
        }
    }
    (compared, different)
}

#[test]
fn golden_images_are_resized_as_in_pillow() {
    let directory = golden();
    let text = fs::read_to_string(directory.join("expected/resize.jsonl")).expect("expectations");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let results: Result<Vec<_>, ()> =
        par::try_map(&lines, |line| Ok(differences(&directory, line)));
    let (compared, different): (Vec<_>, Vec<_>) = results.unwrap().into_iter().unzip();

    let different = different.concat();
    assert!(different.is_empty(), "{}", different.join("\n"));
    let compared: usize = compared.iter().sum();
    assert!(compared > lines.len(), "compared only {compared} resizes");
}
