mod fan_out;
mod oracle;
mod reading;

use super::{BatchLimit, GenerateBody};
use crate::{error::RequestError, message::GenerateRequest};

/// What a body becomes, on a server whose limit is that of the default.
fn requests(body: &[u8]) -> Result<(Vec<GenerateRequest>, bool), RequestError> {
    GenerateBody::from_json(body)?.into_requests(BatchLimit::default())
}

/// The refusal of a field.
fn refusal(field: &str, rule: &str) -> RequestError {
    RequestError::field(field, format!("`{field}` {rule}"))
}
