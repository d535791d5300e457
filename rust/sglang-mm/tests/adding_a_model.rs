//! Tests the example family of the README. `tests/bindings/test_crate_readme.py` checks that the
//! code here equals the code in the README.

use std::error::Error;

use sglang_mm_core::common::token_layout::apply_layout;

use serde::Deserialize;

use sglang_mm_core::{
    common::{
        Size,
        token_layout::layout_by_placeholder,
        transforms::{extract_patches_hwc, normalize_rgb_f32, pad_to_grid, patch_grid},
    },
    pipeline::{
        DecodedMedia, FamilyError, Geometry, MmFamilyProcessor, ProcessedItem, Tensor, TensorData,
        TokenLayout,
    },
};

/// The settings of one checkpoint.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MosaicSpec {
    /// Token id of the placeholder, one per image in the original prompt.
    pub image_token_id: i32,
    /// Height and width of a patch in pixels.
    pub patch_size: usize,
    /// Mean of red, green and blue, for values scaled to 0..1.
    pub image_mean: [f32; 3],
    /// Standard deviation of red, green and blue, for values scaled to 0..1.
    pub image_std: [f32; 3],
}

/// The family with the settings of one checkpoint.
#[derive(Clone, Debug)]
pub struct Mosaic(MosaicSpec);

/// The settings are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MosaicSpecError {
    /// The patch size is 0.
    #[error("mosaic spec: patch_size must be positive")]
    PatchSize,
}

impl Mosaic {
    /// Constructs the family with the settings in `spec`.
    ///
    /// # Errors
    ///
    /// If the settings are invalid.
    pub fn new(spec: MosaicSpec) -> Result<Self, MosaicSpecError> {
        if spec.patch_size == 0 {
            return Err(MosaicSpecError::PatchSize);
        }
        Ok(Self(spec))
    }
}

impl MmFamilyProcessor for Mosaic {
    fn process_item(&self, media: &DecodedMedia) -> Result<ProcessedItem, FamilyError> {
        let DecodedMedia::Image { rgb, height, width } = media;
        let (height, width) = (*height, *width);
        let size = Size { height, width };
        let patch = Size {
            height: self.0.patch_size,
            width: self.0.patch_size,
        };
        let mut values = Vec::new();
        normalize_rgb_f32(
            rgb,
            size,
            &self.0.image_mean,
            &self.0.image_std,
            &mut values,
        )?;
        let (values, canvas) = pad_to_grid(&values, size, patch, &[0.0; 3])?;
        let patches = extract_patches_hwc(&values, canvas, 3, patch)?;
        let (rows, columns) = patch_grid(size, patch)?;
        Ok(ProcessedItem {
            feature: Tensor {
                shape: vec![rows * columns, patch.height, patch.width, 3],
                data: TensorData::F32(patches),
            },
            aux: vec![],
            geometry: Geometry::Grid([1, u32::try_from(rows)?, u32::try_from(columns)?]),
        })
    }

    fn layout(&self, ids: &[i32], geometries: &[Geometry]) -> Result<TokenLayout, FamilyError> {
        // One token per patch.
        let tokens = |Geometry::Grid(grid): &Geometry| grid.iter().map(|&n| n as usize).product();
        let counts: Vec<usize> = geometries.iter().map(tokens).collect();
        Ok(layout_by_placeholder(ids, self.0.image_token_id, &counts)?)
    }
}

fn mosaic() -> Mosaic {
    let spec = r#"{"image_token_id": 9, "patch_size": 2, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}"#;
    Mosaic::new(serde_json::from_str(spec).unwrap()).unwrap()
}

/// An image becomes padded patches, and its placeholder is expanded to one token per patch.
#[test]
fn an_image_becomes_patches_and_tokens() -> Result<(), Box<dyn Error + Send + Sync>> {
    let family = mosaic();
    let media = DecodedMedia::Image {
        rgb: vec![255; 2 * 3 * 3],
        height: 2,
        width: 3,
    };

    let item = family.process_item(&media)?;
    let layout = family.layout(&[7, 9, 8], std::slice::from_ref(&item.geometry))?;
    let prompt = apply_layout(&[7, 9, 8], &layout, 1)?;

    assert_eq!(Geometry::Grid([1, 1, 2]), item.geometry);
    assert_eq!(vec![2, 2, 2, 3], item.feature.shape);
    let (inside, padding) = ([1.0_f32; 3], [0.0; 3]);
    let expected = [[inside; 4], [inside, padding, inside, padding]]
        .concat()
        .concat();
    assert_eq!(TensorData::F32(expected), item.feature.data);
    assert_eq!(vec![7, 9, 9, 8], prompt.input_ids);
    assert_eq!(vec![(1, 2)], prompt.offsets);
    Ok(())
}

#[test]
fn patch_size_zero_is_refused() {
    let spec = MosaicSpec {
        patch_size: 0,
        ..mosaic().0
    };
    assert_eq!(MosaicSpecError::PatchSize, Mosaic::new(spec).unwrap_err());
}
