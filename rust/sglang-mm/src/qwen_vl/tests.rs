//! Compares patches with a slow reference; tests the tokens per image and the errors.

use proptest::prelude::*;

use super::{Backend, PixelValues, QwenVl, QwenVlSpec, normalize::value_table, smart_resize};
use crate::{
    common::{
        Size,
        resize::{PassOrder, resize_rgb},
    },
    pipeline::{
        Capabilities, DecodedMedia, Geometry, MmFamilyProcessor, PositionOutput, Tensor, TensorData,
    },
};

/// Settings with small patches: 8 by 8 pixels are four patches and one token.
pub(super) fn spec() -> QwenVlSpec {
    QwenVlSpec {
        image_token_id: 9,
        patch_size: 4,
        merge_size: 2,
        temporal_patch_size: 2,
        min_pixels: 64,
        max_pixels: 4096,
        image_mean: [0.5, 0.4, 0.3],
        image_std: [0.2, 0.3, 0.4],
        resample: Backend::AtenU8,
        pass_order: PassOrder::Pillow13,
        exif_transpose: false,
        max_image_pixels: None,
    }
}

fn noise(size: Size, seed: usize) -> Vec<u8> {
    (0..size.rgb_len().unwrap())
        .map(|at| ((at + seed) * (at ^ 0x5bd1) / 7 % 251) as u8)
        .collect()
}

/// The slow reference: resizes the whole image, then looks up each output value on its own.
fn slow_pixel_values(spec: &QwenVlSpec, rgb: &[u8], size: Size) -> PixelValues {
    let (patch, merge) = (spec.patch_size, spec.merge_size);
    let factor = std::num::NonZeroUsize::new(patch * merge).unwrap();
    let to = smart_resize(size, factor, spec.min_pixels, spec.max_pixels).unwrap();
    let resized = resize_rgb(rgb, size, to, spec.resampling()).unwrap();
    let table = value_table(spec).0;
    let [high, wide] = [to.height / patch, to.width / patch];
    let mut values = Vec::new();
    for block_row in 0..high / merge {
        for block_column in 0..wide / merge {
            for inner in 0..merge * merge {
                let top = (block_row * merge + inner / merge) * patch;
                let left = (block_column * merge + inner % merge) * patch;
                for (channel, values_of) in table.iter().enumerate() {
                    for _frame in 0..spec.temporal_patch_size {
                        for pixel in 0..patch * patch {
                            let (y, x) = (top + pixel / patch, left + pixel % patch);
                            let sample = resized[(y * to.width + x) * 3 + channel];
                            values.push(values_of[usize::from(sample)]);
                        }
                    }
                }
            }
        }
    }
    let grid = [1, high as u32, wide as u32];
    PixelValues { values, grid }
}

#[test]
fn the_family_accepts_only_images() {
    let family = QwenVl::new(spec()).unwrap();
    assert_eq!(Capabilities::default(), family.capabilities());
}

/// The image has its target size already, so the output shows where each sample is written.
#[test]
fn values_are_in_patch_order() {
    let spec = QwenVlSpec {
        patch_size: 1,
        temporal_patch_size: 2,
        min_pixels: 1,
        image_mean: [0.0; 3],
        image_std: [1.0 / 255.0; 3],
        resample: Backend::Pil,
        ..spec()
    };
    let rgb: Vec<u8> = (0..24).collect();
    let size = Size {
        height: 2,
        width: 4,
    };
    let PixelValues { values, grid } = QwenVl::new(spec).unwrap().pixel_values(&rgb, size).unwrap();
    assert_eq!([1, 2, 4], grid);
    let pixels = [0, 1, 4, 5, 2, 3, 6, 7].map(|pixel| 3 * pixel);
    let expected: Vec<u8> = pixels
        .iter()
        .flat_map(|red| [0, 0, 1, 1, 2, 2].map(|channel| red + channel))
        .collect();
    let values: Vec<u8> = values.iter().map(|value| value.round() as u8).collect();
    assert_eq!(expected, values);
}

#[test]
fn an_item_has_patches_and_grid() {
    let family = QwenVl::new(spec()).unwrap();
    let media = DecodedMedia::Image {
        rgb: vec![0; 8 * 16 * 3],
        height: 8,
        width: 16,
    };
    let item = family.process_item(&media).unwrap();
    assert_eq!(vec![8, 3 * 2 * 16], item.feature.shape);
    assert_eq!(8 * 3 * 2 * 16, item.feature.data.len());
    assert!(matches!(item.feature.data, TensorData::F32(_)));
    let grid = Tensor {
        shape: vec![3],
        data: TensorData::I64(vec![1, 2, 4]),
    };
    assert_eq!(vec![("image_grid_thw".to_owned(), grid)], item.aux);
    assert_eq!(Geometry::Grid([1, 2, 4]), item.geometry);
}

#[test]
fn invalid_items_are_refused() {
    let family = QwenVl::new(spec()).unwrap();
    let huge = QwenVl::new(QwenVlSpec {
        min_pixels: 1 << 40,
        max_pixels: 1 << 40,
        ..spec()
    })
    .unwrap();
    #[rustfmt::skip]
    let cases = [
        ("no pixels", &family, 0, 0, 5, "empty image"),
        ("thin", &family, 603, 1, 201, "aspect ratio must be smaller than 200, got 201.0"),
        ("buffer too short", &family, 5, 2, 2, "an RGB image 2 high, 2 wide does not have 5 bytes"),
        ("buffer checked before allocating", &huge, 2, 1, 1, "an RGB image 1 high, 1 wide does not have 2 bytes"),
        ("larger than memory", &huge, 3, 1, 1, "not enough memory"),
    ];
    for (name, family, len, height, width, expected) in cases {
        let rgb = vec![0; len];
        let media = DecodedMedia::Image { rgb, height, width };
        let error = family.process_item(&media).expect_err(name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn a_placeholder_is_expanded_to_one_token_per_block() {
    let family = QwenVl::new(spec()).unwrap();
    let grids = [Geometry::Grid([1, 2, 4]), Geometry::Grid([1, 2, 2])];
    let layout = family.layout(&[9, 5, 9], &grids).unwrap();
    let prompt = crate::common::token_layout::apply_layout(&[9, 5, 9], &layout, 2).unwrap();
    assert_eq!(vec![9, 9, 5, 9], prompt.input_ids);
    assert_eq!(vec![(0, 1), (3, 3)], prompt.offsets);

    let positions = family.positions(4, &prompt.offsets, &grids).unwrap();
    let expected = PositionOutput::MRope {
        positions: vec![0, 0, 2, 3, 0, 0, 2, 3, 0, 1, 2, 3],
        delta: 0,
    };
    assert_eq!(expected, positions);

    let error = family.layout(&[9, 9, 9], &grids).unwrap_err().to_string();
    assert!(error.contains("3 media placeholder(s) but 2 media item(s)"));
    let error = family.positions(4, &prompt.offsets, &grids[..1]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("2 token span(s) but 1 grid(s)"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Writing rows directly to patches gives the values of the slow reference, for all settings.
    #[test]
    fn patches_equal_the_slow_reference(
        height in 1..70_usize,
        width in 1..70_usize,
        patch_size in 1..6_usize,
        merge_size in 1..4_usize,
        temporal_patch_size in 1..4_usize,
        pil: bool,
        seed in 0..1000_usize,
    ) {
        let size = Size { height, width };
        let spec = QwenVlSpec {
            patch_size,
            merge_size,
            temporal_patch_size,
            resample: if pil { Backend::Pil } else { Backend::AtenU8 },
            ..spec()
        };
        let rgb = noise(size, seed);
        let expected = slow_pixel_values(&spec, &rgb, size);
        let got = QwenVl::new(spec).unwrap().pixel_values(&rgb, size).unwrap();
        prop_assert_eq!(expected, got);
    }
}
