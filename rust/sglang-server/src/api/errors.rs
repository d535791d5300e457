//! How an error looks to a client of the native routes: `{"error": {"message", "code"}}`,
//! where the code is the HTTP status.
//!
//! Invariant: no answer of ours that is an error looks otherwise, whoever refused.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::error::RequestError;

/// Seconds after which an overloaded server may be asked again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// The body of an error.
pub(crate) fn body(status: u16, message: &str) -> String {
    json!({"error": {"message": message, "code": status}}).to_string()
}

/// The body of `error`.
pub(crate) fn body_of(error: &RequestError) -> String {
    body(error.status(), &error.to_string())
}

/// As [`body_of`], for the answer at `index` of a stream of several.
pub(crate) fn indexed(error: &RequestError, index: usize) -> String {
    let status = error.status();
    json!({"error": {"message": error.to_string(), "code": status}, "index": index}).to_string()
}

/// An answer with a status and an error's body.
pub(crate) fn refusal(status: StatusCode, message: &str) -> Response {
    let kind = HeaderValue::from_static("application/json");
    let body = body(status.as_u16(), message);
    let mut response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        refusal(status, &self.to_string())
    }
}
