//! Error responses of the native routes: `{"error": {"message", "code"}}`, where the code is the
//! HTTP status.
//!
//! Invariant: every error response has this body, except three that hyper sends itself. hyper
//! answers a malformed request head with 400, a URI that is too long with 414, and a head that is
//! too large with 431. These have no body: hyper 1 builds them before it calls any of our code,
//! and has no hook to change them.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::error::RequestError;

/// Seconds after which a client may retry when the server is overloaded.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// The body of an error response.
pub(crate) fn body(status: u16, message: &str) -> String {
    json!({"error": {"message": message, "code": status}}).to_string()
}

/// The body for `error`.
pub(crate) fn body_of(error: &RequestError) -> String {
    body(error.status(), &error.to_string())
}

/// As [`body_of`], for the generation at `index` of a batch stream.
pub(crate) fn body_with_index(error: &RequestError, index: usize) -> String {
    let status = error.status();
    json!({"error": {"message": error.to_string(), "code": status}, "index": index}).to_string()
}

/// An error response.
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

/// The error when a request receives an event that belongs to another kind of request.
pub(crate) fn unexpected_event() -> RequestError {
    RequestError::Internal("unexpected event for this kind of request".into())
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        refusal(status, &self.to_string())
    }
}
