//! Constructs a model family from its settings.
//!
//! There are two constructors: [`build_pipeline`] takes a [`PipelineSpec`] (for a server),
//! [`pipeline_from_spec`] takes its JSON form (for tests and scripts).
//!
//! Invariant: both construct the same families and refuse the same settings.

use serde::Deserialize;

use crate::{
    common::excerpt::excerpt,
    pipeline::MmFamilyProcessor,
    qwen_vl::{QwenVl, QwenVlSpec, QwenVlSpecError},
};

/// The settings of a family. In JSON it is an object whose field `family` names the family.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "family", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PipelineSpec {
    /// Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5.
    QwenVl(QwenVlSpec),
}

/// A family could not be constructed from the settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineSpecError {
    /// The text is not a JSON object with a field `family`, or the other fields do not match
    /// that family.
    #[error("pipeline spec: {}", excerpt(.0))]
    Json(#[from] serde_json::Error),
    /// There is no family of this name. A long name is truncated.
    #[error("unknown multimodal family: {0}")]
    UnknownFamily(String),
    /// The family refused its settings.
    #[error(transparent)]
    QwenVl(#[from] QwenVlSpecError),
}

/// Constructs the family with the settings in `spec`.
///
/// # Errors
///
/// If the family's constructor refuses the settings.
pub fn build_pipeline(spec: PipelineSpec) -> Result<Box<dyn MmFamilyProcessor>, PipelineSpecError> {
    Ok(match spec {
        PipelineSpec::QwenVl(spec) => Box::new(QwenVl::new(spec)?),
    })
}

/// Constructs the family with the settings in `json`.
///
/// # Errors
///
/// If the text is not JSON or the family is unknown, and as [`build_pipeline`].
pub fn pipeline_from_spec(json: &str) -> Result<Box<dyn MmFamilyProcessor>, PipelineSpecError> {
    #[derive(Deserialize)]
    struct Tag {
        family: String,
    }
    let Tag { family } = serde_json::from_str(json)?;
    match family.as_str() {
        // The family parses its own settings, so that its name is in the error messages.
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

    /// The results of both constructors, from text and from a parsed value.
    fn construct_both_ways(json: &str) -> [Result<(), String>; 2] {
        let message = |error: PipelineSpecError| error.to_string();
        let from_value = || build_pipeline(serde_json::from_str::<PipelineSpec>(json)?);
        let discard = |_: Box<dyn MmFamilyProcessor>| ();
        [
            pipeline_from_spec(json).map(discard).map_err(message),
            from_value().map(discard).map_err(message),
        ]
    }

    #[test]
    fn both_constructors_accept_and_refuse_the_same_settings() {
        let accepted = construct_both_ways(&spec("unknown_field", json!(1)));
        assert_eq!([Ok(()), Ok(())], accepted);
        let refused = construct_both_ways(&spec("patch_size", json!(0)));
        for error in refused.map(Result::unwrap_err) {
            assert!(error.starts_with("qwen_vl spec: sizes must be positive"));
        }
    }

    #[test]
    fn invalid_text_is_refused() {
        #[rustfmt::skip]
        let cases = [
            ("not JSON", "{".to_owned(), "pipeline spec: "),
            ("not an object", "7".to_owned(), "pipeline spec: "),
            ("family is missing", "{}".to_owned(), "pipeline spec: missing field `family`"),
            ("family is not a string", spec("family", json!(7)), "pipeline spec: invalid type: integer `7`"),
            ("unknown family", spec("family", json!("llava")), "unknown multimodal family: llava"),
            ("long family name", spec("family", json!("x".repeat(999))), "unknown multimodal family: xxx"),
            ("field of a wrong type", spec("patch_size", json!("14")), "qwen_vl spec: invalid type: string \"14\""),
        ];
        for (name, json, expected) in cases {
            let [from_text, from_value] =
                construct_both_ways(&json).map(|result| result.expect_err(name));
            assert!(from_text.starts_with(expected), "{name}: {from_text}");
            assert!(from_text.len() < 300, "{name}: {from_text}");
            assert!(!from_value.is_empty(), "{name}");
        }
    }
}
