//! Compares the `pixel_values` of every golden image with those of both Hugging Face image processors.
//!
//! The images are in the folder `SGLANG_GOLDEN`, or by default in the small set of the checkout. Its
//! subfolder `expected` has the results with Pillow 13.0, and `expected_pillow12` those with Pillow
//! 12.0, in which the vertical pass never comes first.

use std::{
    env, fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sglang_mm_core::{
    common::{
        Size,
        decode::{RgbImage, decode_rgb},
        par,
        resize::{Filter, PassOrder, Resample, resize_rgb},
    },
    qwen_vl::{Backend, PixelValues, QwenVl, QwenVlSpec, smart_resize},
};
use sha2::{Digest, Sha256};

/// Settings for which there are expectations.
struct Settings {
    /// The key of these settings in the expectations.
    key: &'static str,
    patch_size: usize,
    min_pixels: usize,
    max_pixels: usize,
    image_mean: [f32; 3],
    image_std: [f32; 3],
}

const CLIP_MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const CLIP_STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];

const SETTINGS: [Settings; 3] = [
    Settings {
        key: "qwen2_vl_class_default",
        patch_size: 14,
        min_pixels: 3136,
        max_pixels: 1_003_520,
        image_mean: CLIP_MEAN,
        image_std: CLIP_STD,
    },
    Settings {
        key: "qwen2_vl_hub__qwen2_5_vl_hub",
        patch_size: 14,
        min_pixels: 3136,
        max_pixels: 12_845_056,
        image_mean: CLIP_MEAN,
        image_std: CLIP_STD,
    },
    Settings {
        key: "qwen3_vl_hub",
        patch_size: 16,
        min_pixels: 65_536,
        max_pixels: 16_777_216,
        image_mean: [0.5; 3],
        image_std: [0.5; 3],
    },
];

/// The key of a backend in the expectations, and the backend.
const BACKENDS: [(&str, Backend); 2] = [("pil", Backend::Pil), ("tv", Backend::AtenU8)];

impl Settings {
    fn spec(&self, resample: Backend, pass_order: PassOrder) -> QwenVlSpec {
        QwenVlSpec {
            patch_size: self.patch_size,
            min_pixels: self.min_pixels,
            max_pixels: self.max_pixels,
            image_mean: self.image_mean,
            image_std: self.image_std,
            resample,
            pass_order,
            ..QwenVlSpec::from_json(
                r#"{"image_token_id": 1, "patch_size": 1, "merge_size": 2, "temporal_patch_size": 2,
                    "min_pixels": 1, "max_pixels": 1, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}"#,
            )
            .unwrap()
        }
    }
}

fn golden() -> PathBuf {
    let small = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    env::var_os("SGLANG_GOLDEN").map_or_else(small, PathBuf::from)
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn sha256<const N: usize>(pieces: impl Iterator<Item = [u8; N]>) -> String {
    let mut hasher = Sha256::new();
    let mut block = Vec::with_capacity(1 << 16);
    for piece in pieces {
        block.extend(piece);
        if block.len() >= 1 << 16 {
            hasher.update(&block);
            block.clear();
        }
    }
    hasher.update(&block);
    let digest = hasher.finalize();
    digest
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Round to nearest, ties to even.
fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// A description of the first difference between our result for an image and that of one Hugging Face
/// processor. `None` if they are equal.
fn difference(
    settings: &Settings,
    expected: &Value,
    image: &RgbImage,
    pass_order: PassOrder,
    (key, backend): (&str, Backend),
) -> Option<String> {
    let size = Size {
        height: image.height,
        width: image.width,
    };
    let family = QwenVl::new(settings.spec(backend, pass_order)).unwrap();
    let PixelValues { values, grid } = match family.pixel_values(&image.pixels, size) {
        Ok(values) => values,
        Err(error) => {
            let same = expected["message"].as_str() == Some(error.to_string().as_str());
            return (!same).then(|| format!("error: {error}"));
        }
    };
    let to = Size {
        height: grid[1] as usize * settings.patch_size,
        width: grid[2] as usize * settings.patch_size,
    };
    let resample = match backend {
        Backend::Pil => Resample::Pil(Filter::Bicubic, pass_order),
        Backend::AtenU8 => Resample::AtenU8,
    };
    let resized = resize_rgb(&image.pixels, size, to, resample).unwrap();
    let ours = [
        ("resized_sha256", sha256(resized.iter().map(|&byte| [byte]))),
        (
            "f32_sha256",
            sha256(values.iter().map(|value| value.to_le_bytes())),
        ),
        (
            "bf16_sha256",
            sha256(values.iter().map(|&value| bf16(value).to_le_bytes())),
        ),
    ];
    if expected["grid_thw"] != Value::from(grid.to_vec()) {
        return Some(format!("grid {grid:?}"));
    }
    ours.into_iter()
        .find(|(field, hash)| expected[key][field].as_str() != Some(hash))
        .map(|(field, _)| format!("{key}: {field}"))
}

/// Compares all images with the subfolder `expectations` and fails if a result differs. Returns the
/// number of results that were compared.
fn compare(
    settings: &Settings,
    expectations: &str,
    pass_order: PassOrder,
    backends: &[(&str, Backend)],
) -> usize {
    let directory = golden();
    let read = |name: &str| fs::read_to_string(directory.join(expectations).join(name)).unwrap();
    let lines = |text: String| -> Vec<Value> {
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let pixels: std::collections::BTreeMap<String, Value> = lines(read("decode.jsonl"))
        .into_iter()
        .map(|line| {
            (
                line["file"].as_str().unwrap().to_owned(),
                line["rgb_sha256"].clone(),
            )
        })
        .collect();
    let compare_image = |line: &Value| {
        let file = line["file"].as_str().unwrap();
        let bytes = fs::read(directory.join("images_open").join(file)).unwrap();
        // Images that cannot be decoded, or have other pixels, are skipped: `decode_golden.rs` tests decoding.
        let Ok(image) = decode_rgb(&bytes) else {
            return Ok(vec![]);
        };
        if pixels[file].as_str() != Some(&sha256(image.pixels.iter().map(|&byte| [byte]))) {
            return Ok(vec![]);
        }
        let expected = &line[settings.key];
        let results = backends.iter().map(|&backend| {
            difference(settings, expected, &image, pass_order, backend)
                .map(|difference| format!("{file}, {}: {difference}", settings.key))
        });
        Ok(results.collect::<Vec<_>>())
    };
    let results: Result<Vec<_>, ()> = par::try_map(&lines(read("hf.jsonl")), compare_image);
    let results = results.unwrap().concat();
    let different: Vec<&String> = results.iter().flatten().collect();
    assert!(different.is_empty(), "{different:#?}");
    results.len()
}

fn check(settings: &Settings) {
    let compared = compare(settings, "expected", PassOrder::Pillow13, &BACKENDS);
    assert!(compared >= 20, "compared only {compared} results");
    if golden().join("expected_pillow12").exists() {
        let older = compare(
            settings,
            "expected_pillow12",
            PassOrder::Horizontal,
            &BACKENDS[..1],
        );
        assert!(older >= compared / 2 - 4, "compared only {older} results");
    }
}

#[test]
fn qwen2_vl_class_defaults() {
    check(&SETTINGS[0]);
}

#[test]
fn qwen2_vl_and_qwen2_5_vl_as_published() {
    check(&SETTINGS[1]);
}

#[test]
fn qwen3_vl_as_published() {
    check(&SETTINGS[2]);
}

/// The image has one pixel for each of the 256 sample values, and each pixel is one patch. So the
/// patches are the value table.
#[test]
fn value_tables_equal_those_of_the_processors() {
    let expected = json(&golden().join("expected/lut.json"));
    let ramp: Vec<u8> = (0..=255).flat_map(|sample| [sample; 3]).collect();
    let size = Size {
        height: 16,
        width: 16,
    };
    for settings in &SETTINGS {
        for (key, backend) in BACKENDS {
            let spec = QwenVlSpec {
                patch_size: 1,
                merge_size: 1,
                temporal_patch_size: 1,
                min_pixels: 256,
                max_pixels: 256,
                ..settings.spec(backend, PassOrder::default())
            };
            let values = QwenVl::new(spec)
                .unwrap()
                .pixel_values(&ramp, size)
                .unwrap()
                .values;
            for colour in 0..3 {
                let ours: Vec<String> = values[colour..]
                    .iter()
                    .step_by(3)
                    .map(|value| format!("{:08x}", value.to_bits()))
                    .collect();
                let table = &expected[settings.key][key]["f32_bits_hex_per_channel_RGB"][colour];
                assert_eq!(*table, Value::from(ours), "{} {key} {colour}", settings.key);
            }
        }
    }
}

#[test]
fn smart_resize_gives_the_expected_sizes() {
    let rows = json(&golden().join("expected/smart_resize.json"));
    let rows = rows.as_array().unwrap();
    assert!(rows.len() > 400);
    for row in rows {
        let side = |name: &str| usize::try_from(row[name].as_u64().unwrap()).unwrap();
        let size = Size {
            height: side("h"),
            width: side("w"),
        };
        for settings in &SETTINGS {
            let factor = NonZeroUsize::new(settings.patch_size * 2).unwrap();
            let ours = smart_resize(size, factor, settings.min_pixels, settings.max_pixels);
            let ours = match ours {
                Ok(size) => Value::from(vec![size.height, size.width]),
                Err(error) => Value::from(error.to_string()),
            };
            assert_eq!(row[settings.key], ours, "{size}, {}", settings.key);
        }
    }
}
