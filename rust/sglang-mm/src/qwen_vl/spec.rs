//! Parses and checks the settings of a checkpoint's image processor, which a server sends as
//! JSON.
//!
//! Invariant: settings that pass [`QwenVlSpec::checked`] cannot cause an arithmetic failure:
//! no size is 0 or overflows, the pixel limits are a valid range, no value is divided by 0.

use std::num::NonZeroUsize;

use serde::Deserialize;

use super::patch_grid::PatchGrid;

use crate::common::{
    decode::{DecodeLimits, DecodeOptions},
    excerpt::excerpt,
    resize::{Filter, PassOrder, Resample},
};

/// The image processor whose results are reproduced bit for bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// torchvision's (`Qwen2VLImageProcessor`, formerly `…Fast`).
    #[default]
    AtenU8,
    /// Pillow's (`Qwen2VLImageProcessorPil`).
    Pil,
}

/// The settings of the family. Unknown JSON fields are ignored.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct QwenVlSpec {
    /// Token id of the placeholder for an image in prompts.
    pub image_token_id: i32,
    /// Height and width of a patch in pixels.
    pub patch_size: usize,
    /// Patches along each side of a token.
    pub merge_size: usize,
    /// Frames in a patch; a still image is repeated that many times.
    pub temporal_patch_size: usize,
    /// Lower limit of a resized image's area, in pixels.
    pub min_pixels: usize,
    /// Upper limit of a resized image's area, in pixels.
    pub max_pixels: usize,
    /// Mean of each channel, for samples scaled to 0..1.
    pub image_mean: [f32; 3],
    /// Standard deviation of each channel, for samples scaled to 0..1.
    pub image_std: [f32; 3],
    /// The image processor to reproduce.
    #[serde(default)]
    pub resample: Backend,
    /// The Pillow version whose order of resize passes is used; only for the backend `pil`.
    #[serde(default)]
    pub pass_order: PassOrder,
    /// Apply the EXIF orientation of images first.
    #[serde(default)]
    pub exif_transpose: bool,
    /// The maximum number of pixels in a file; by default the limit of Pillow.
    #[serde(default)]
    pub max_image_pixels: Option<u64>,
}

/// The settings are invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QwenVlSpecError {
    /// The text is not JSON, or a field is missing or has a wrong type.
    #[error("qwen_vl spec: {}", excerpt(.0))]
    Json(#[from] serde_json::Error),
    /// A size is 0.
    #[error(
        "qwen_vl spec: sizes must be positive, got patch_size {patch_size}, \
         merge_size {merge_size}, temporal_patch_size {temporal_patch_size}"
    )]
    ZeroSize {
        /// Height and width of a patch.
        patch_size: usize,
        /// Patches along each side of a token.
        merge_size: usize,
        /// Frames in a patch.
        temporal_patch_size: usize,
    },
    /// The elements of one token would exceed the address space.
    #[error(
        "qwen_vl spec: sizes are too large: one token would have more elements than can be addressed"
    )]
    HugeSize,
    /// The lower limit is 0, or greater than the upper limit.
    #[error("qwen_vl spec: need 0 < min_pixels <= max_pixels, got {min_pixels} and {max_pixels}")]
    PixelLimits {
        /// Lower limit.
        min_pixels: usize,
        /// Upper limit.
        max_pixels: usize,
    },
    /// A mean is not finite.
    #[error("qwen_vl spec: image_mean must be finite, got {0:?}")]
    Mean([f32; 3]),
    /// A standard deviation is not finite and positive.
    #[error("qwen_vl spec: image_std must be finite and positive, got {0:?}")]
    Std([f32; 3]),
}

impl QwenVlSpec {
    /// Parses the settings in `json`. Their values are checked later, by
    /// [`QwenVl::new`](super::QwenVl::new).
    ///
    /// # Errors
    ///
    /// If the text is not JSON, or a field is missing or has a wrong type.
    pub fn from_json(json: &str) -> Result<Self, QwenVlSpecError> {
        Ok(serde_json::from_str(json)?)
    }

    /// Checks the settings; returns the sizes of patches and tokens.
    pub(super) fn checked(&self) -> Result<PatchGrid, QwenVlSpecError> {
        let &Self {
            patch_size,
            merge_size,
            temporal_patch_size,
            min_pixels,
            max_pixels,
            ..
        } = self;
        let sizes = [patch_size, merge_size, temporal_patch_size].map(NonZeroUsize::new);
        let [Some(patch), Some(merge), Some(frames)] = sizes else {
            return Err(QwenVlSpecError::ZeroSize {
                patch_size,
                merge_size,
                temporal_patch_size,
            });
        };
        if min_pixels == 0 || min_pixels > max_pixels {
            return Err(QwenVlSpecError::PixelLimits {
                min_pixels,
                max_pixels,
            });
        }
        if !self.image_mean.iter().all(|mean| mean.is_finite()) {
            return Err(QwenVlSpecError::Mean(self.image_mean));
        }
        if !self
            .image_std
            .iter()
            .all(|std| std.is_finite() && *std > 0.0)
        {
            return Err(QwenVlSpecError::Std(self.image_std));
        }
        PatchGrid::new(patch, merge, frames).ok_or(QwenVlSpecError::HugeSize)
    }

    /// The options for decoding images.
    pub(super) fn decoding(&self) -> DecodeOptions {
        DecodeOptions {
            limits: DecodeLimits::at_most(self.max_image_pixels),
            exif_transpose: self.exif_transpose,
        }
    }

    /// The options for resizing images.
    pub(super) fn resampling(&self) -> Resample {
        match self.resample {
            Backend::AtenU8 => Resample::AtenU8,
            Backend::Pil => Resample::Pil(Filter::Bicubic, self.pass_order),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::spec, Backend, QwenVlSpec};
    use crate::common::resize::PassOrder;

    fn json() -> serde_json::Value {
        json!({
            "family": "qwen_vl",
            "image_token_id": 9,
            "patch_size": 4,
            "merge_size": 2,
            "temporal_patch_size": 2,
            "min_pixels": 64,
            "max_pixels": 4096,
            "image_mean": [0.5, 0.4, 0.3],
            "image_std": [0.2, 0.3, 0.4],
        })
    }

    fn check(field: &str, value: serde_json::Value) -> Result<QwenVlSpec, String> {
        let mut fields = json();
        fields[field] = value;
        QwenVlSpec::from_json(&fields.to_string())
            .and_then(|spec| spec.checked().map(|_| spec))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn fields_set_the_settings() {
        let same = spec();
        #[rustfmt::skip]
        let cases = [
            ("family",      json!("any text"),   same.clone()),
            ("feature_shm", json!({"size": 1}),  same.clone()),
            ("resample",    json!("aten_u8"),    same.clone()),
            ("resample",    json!("pil"),        QwenVlSpec { resample: Backend::Pil, ..same.clone() }),
            ("pass_order",  json!("pillow13"),   same.clone()),
            ("pass_order",  json!("pillow12_2"), QwenVlSpec { pass_order: PassOrder::Pillow12_2, ..same.clone() }),
            ("pass_order",  json!("horizontal"), QwenVlSpec { pass_order: PassOrder::Horizontal, ..same.clone() }),
            ("exif_transpose",   json!(true), QwenVlSpec { exif_transpose: true, ..same.clone() }),
            ("max_image_pixels", json!(9),    QwenVlSpec { max_image_pixels: Some(9), ..same.clone() }),
            ("min_pixels",  json!(4096),         QwenVlSpec { min_pixels: 4096, ..same.clone() }),
        ];
        for (field, value, expected) in cases {
            let name = format!("{field} = {value}");
            assert_eq!(Ok(expected), check(field, value), "{name}");
        }
    }

    #[test]
    fn invalid_fields_are_refused() {
        #[rustfmt::skip]
        let cases = [
            ("patch_size",          json!(0),                  "sizes must be positive"),
            ("merge_size",          json!(0),                  "sizes must be positive"),
            ("temporal_patch_size", json!(0),                  "sizes must be positive"),
            ("patch_size",          json!(1_u64 << 40),        "sizes are too large"),
            ("temporal_patch_size", json!(u64::MAX),           "sizes are too large"),
            ("patch_size",          json!(-1),                 "invalid value: integer `-1`"),
            ("min_pixels",          json!(0),                  "need 0 < min_pixels <= max_pixels, got 0 and 4096"),
            ("min_pixels",          json!(4097),               "need 0 < min_pixels <= max_pixels, got 4097 and 4096"),
            ("max_pixels",          json!(null),               "invalid type: null"),
            ("image_mean",          json!([0.5, 1e39, 0.5]),   "image_mean must be finite"),
            ("image_mean",          json!([0.5, 0.5]),         "invalid length 2"),
            ("image_std",           json!([0.5, 0.0, 0.5]),    "image_std must be finite and positive"),
            ("image_std",           json!([0.5, 1e-60, 0.5]),  "image_std must be finite and positive"),
            ("image_std",           json!([-0.5, 0.5, 0.5]),   "image_std must be finite and positive"),
            ("image_std",           json!([1e39, 0.5, 0.5]),   "image_std must be finite and positive"),
            ("resample",            json!("lanczos"),          "unknown variant `lanczos`"),
            ("pass_order",          json!("vertical"),         "unknown variant `vertical`"),
        ];
        for (field, value, expected) in cases {
            let name = format!("{field} = {value}");
            let error = check(field, value).expect_err(&name);
            assert!(error.starts_with("qwen_vl spec: "), "{name}: {error}");
            assert!(error.contains(expected), "{name}: {error}");
        }
    }

    #[test]
    fn long_fields_are_truncated_in_errors() {
        let long = "x".repeat(1 << 20);
        for field in ["resample", "patch_size", "image_mean"] {
            let error = check(field, json!(long)).expect_err(field);
            assert!(error.starts_with("qwen_vl spec: "), "{field}: {error}");
            assert!(error.len() < 300, "{field}: {error}");
        }
    }

    #[test]
    fn text_that_is_not_a_spec_is_refused() {
        for text in ["", "{", "[]", "null", "{}", "\"qwen_vl\""] {
            let error = QwenVlSpec::from_json(text).expect_err(text).to_string();
            assert!(error.starts_with("qwen_vl spec: "), "{text}: {error}");
        }
    }
}
