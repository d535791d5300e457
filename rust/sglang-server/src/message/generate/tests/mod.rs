mod copies;
mod fan_out;
mod oracle;
mod reading;

use super::{BatchLimit, GenerateBody};
use crate::{error::RequestError, message::GenerateRequest};

/// The requests for a body, with the default batch limit.
fn requests(body: &[u8]) -> Result<(Vec<GenerateRequest>, bool), RequestError> {
    GenerateBody::from_json(body)?.into_requests(BatchLimit::default())
}

/// The error for a field.
fn refusal(field: &str, rule: &str) -> RequestError {
    RequestError::field(field, format!("`{field}` {rule}"))
}
