//! Decoding of the `MessagePack` values in a frame, and the error for a frame that is malformed.

use serde::de::DeserializeOwned;

/// Maximum nesting depth of values. The scheduler's frames are flat, and both decoding
/// and dropping a nested value take stack in proportion to its depth.
const MAX_DEPTH: usize = 64;

/// A frame that breaks the format in `WIRE.md`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed frame: {reason}")]
pub struct MalformedFrame {
    /// The rule that the frame breaks.
    pub reason: String,
    /// The requests that the frame names, as far as they can be decoded.
    pub rids: Vec<String>,
}

impl MalformedFrame {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            rids: Vec::new(),
        }
    }
}

/// Decodes `bytes`, which must hold exactly one value.
pub(super) fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MalformedFrame> {
    let mut rest = bytes;
    let value = decoded_front(&mut rest)?;
    if !rest.is_empty() {
        let surplus = rest.len();
        return Err(MalformedFrame::new(format!(
            "{surplus} byte(s) follow the value"
        )));
    }
    Ok(value)
}

/// Decodes the first value of `bytes` and advances `bytes` past it.
pub(super) fn decoded_front<T: DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, MalformedFrame> {
    let mut values = rmp_serde::Deserializer::new(bytes);
    values.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut values).map_err(|error| MalformedFrame::new(error.to_string()))
}
