//! Small bodies as typed values.

use serde::de::DeserializeOwned;

use crate::error::RequestError;

/// The one value in `body`.
///
/// # Errors
///
/// When it is not JSON, or not of this shape; unknown keys do not matter.
pub(crate) fn from_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, RequestError> {
    serde_json::from_slice(body).map_err(|error| {
        let at = format!("line {} column {}", error.line(), error.column());
        let what = if error.is_data() {
            error.to_string()
        } else {
            format!("the body is not JSON ({at})")
        };
        // What serde repeats of the body may be long.
        RequestError::invalid(what.chars().take(300).collect::<String>())
    })
}
