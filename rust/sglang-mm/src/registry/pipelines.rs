//! The family that a request's settings ask for.
//!
//! A server holds the settings as a value ([`PipelineSpec`], which also is their JSON
//! form); tests and scripts have text.
//!
//! Invariant: both doors build the same families and refuse the same settings.

use serde::Deserialize;

use crate::{
    common::excerpt::excerpt,
    pipeline::MmFamilyProcessor,
    qwen_vl::{QwenVl, QwenVlSpec, QwenVlSpecError},
};

/// The settings of some family; in JSON an object whose field `family` says which.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "family", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PipelineSpec {
    /// Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5.
    QwenVl(QwenVlSpec),
}

/// No family can be made of these settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineSpecError {
    /// Not an object with a family, or its fields are not that family's.
    #[error("pipeline spec: {}", excerpt(.0))]
    Json(#[from] serde_json::Error),
    /// A name that is not known here; a long one is cut.
    #[error("unknown multimodal family: {0}")]
    UnknownFamily(String),
    /// Settings that the family cannot work with.
    #[error(transparent)]
    QwenVl(#[from] QwenVlSpecError),
}

/// The family under `spec`.
///
/// # Errors
///
/// What the family's own constructor refuses.
pub fn build_pipeline(spec: PipelineSpec) -> Result<Box<dyn MmFamilyProcessor>, PipelineSpecError> {
    Ok(match spec {
        PipelineSpec::QwenVl(spec) => Box::new(QwenVl::new(spec)?),
    })
}

/// The family under the settings in `json`.
///
/// # Errors
///
/// Text that is not JSON, a family that is unknown, and as [`build_pipeline`].
pub fn pipeline_from_spec(json: &str) -> Result<Box<dyn MmFamilyProcessor>, PipelineSpecError> {
    #[derive(Deserialize)]
    struct Tag {
        family: String,
    }
    let Tag { family } = serde_json::from_str(json)?;
    match family.as_str() {
        // The family reads its own settings, and names itself in its errors.
        "qwen_vl" => Ok(Box::new(QwenVl::from_json(json)?)),
        _ => Err(PipelineSpecError::UnknownFamily(excerpt(family))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{PipelineSpec, PipelineSpecError, build_pipeline, pipeline_from_spec};
    use crate::pipeline::MmFamilyProcessor;

    fn spec(field: &str, value: serde_json::Value) -> String {
        let mut fields = json!({
            "family": "qwen_vl",
            "image_token_id": 9,
            "patch_size": 14,
            "merge_size": 2,
            "temporal_patch_size": 2,
            "min_pixels": 3136,
            "max_pixels": 1_003_520,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        });
        fields[field] = value;
        fields.to_string()
    }

    /// Both ways in, as text: what they refuse they refuse both.
    fn doors(json: &str) -> [Result<(), String>; 2] {
        let text = |error: PipelineSpecError| error.to_string();
        let typed = || build_pipeline(serde_json::from_str::<PipelineSpec>(json)?);
        let nothing = |_: Box<dyn MmFamilyProcessor>| ();
        [
            pipeline_from_spec(json).map(nothing).map_err(text),
            typed().map(nothing).map_err(text),
        ]
    }

    #[test]
    fn text_and_value_build_the_same_families() {
        assert_eq!([Ok(()), Ok(())], doors(&spec("unknown_field", json!(1))));
        let refused = doors(&spec("patch_size", json!(0)));
        for error in refused.map(Result::unwrap_err) {
            assert!(error.starts_with("qwen_vl spec: sizes must be positive"));
        }
    }

    #[test]
    fn refused_text() {
        #[rustfmt::skip]
        let cases = [
            ("no JSON",        "{".to_owned(),                       "pipeline spec: "),
            ("no object",      "7".to_owned(),                       "pipeline spec: "),
            ("no family",      "{}".to_owned(),                      "pipeline spec: missing field `family`"),
            ("no name",        spec("family", json!(7)),             "pipeline spec: invalid type: integer `7`"),
            ("unknown family", spec("family", json!("llava")),       "unknown multimodal family: llava"),
            ("long family",    spec("family", json!("x".repeat(999))), "unknown multimodal family: xxx"),
            ("wrong type",     spec("patch_size", json!("14")),      "qwen_vl spec: invalid type: string \"14\""),
        ];
        for (name, json, words) in cases {
            let [text, typed] = doors(&json).map(|result| result.expect_err(name));
            assert!(text.starts_with(words), "{name}: {text}");
            assert!(text.len() < 300, "{name}: {text}");
            assert!(!typed.is_empty(), "{name}");
        }
    }
}
