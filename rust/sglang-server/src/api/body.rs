//! The body of a request, before it is parsed.
//!
//! Invariant: a body takes at most the limit in memory, compressed and decompressed, and only
//! JSON is accepted.
//!
//! Two layers of `tower-http` 0.6 do not fit. `RequestDecompression` answers 415 without a body,
//! adds seven crates, and inflates on the API thread, where a large body delays other responses.
//! `RequestBodyTimeout` restarts its timer with each piece of a body, so it never stops a client
//! that sends one byte at a time.

use std::{io::Read as _, panic::resume_unwind, time::Duration};

use axum::{
    Extension,
    body::{Bytes, HttpBody as _},
    extract::{FromRequest, FromRequestParts as _, Request, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use flate2::read::MultiGzDecoder;
use tokio::{task::spawn_blocking, time::timeout};

use super::errors::refusal;
use crate::error::RequestError;

/// A larger body is parsed on a blocking thread: parsing it on an API thread would delay other
/// responses.
const LARGE: usize = 256 << 10;

/// The limits of request bodies. Every request carries them as an extension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyRules {
    /// Maximum number of bytes, compressed and decompressed.
    pub(crate) limit: usize,
    /// Time for the whole body to arrive.
    pub(crate) timeout: Duration,
}

/// The bytes of a JSON body, decompressed.
pub(crate) struct JsonBody(pub(crate) Bytes);

/// The status and the message of a refused body.
type Refused = (StatusCode, String);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let rules = Extension::<BodyRules>::from_request_parts(&mut parts, state).await;
        let Extension(rules) = rules.map_err(|_| {
            let message = "internal: the router sets no body limits";
            refusal(StatusCode::INTERNAL_SERVER_ERROR, message)
        })?;
        let refused = |(status, message): Refused| refusal(status, &message);
        check_content_type(&parts.headers).map_err(refused)?;
        let is_gzip = is_gzip(&parts.headers).map_err(refused)?;
        // A `Content-Length` above the limit is refused before the body is sent.
        if body.size_hint().lower() > rules.limit as u64 {
            return Err(refused(too_large(rules.limit)));
        }
        let request = Request::from_parts(parts, body);
        let bytes = match timeout(rules.timeout, Bytes::from_request(request, state)).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(rejection)) => return Err(refused(incomplete(&rejection, rules.limit))),
            Err(_) => return Err(refused(too_slow(rules.timeout))),
        };
        if !is_gzip {
            return Ok(Self(bytes));
        }
        // gzip inflates up to a thousandfold, so even a small body can be slow.
        match on_blocking_thread(move || decompressed(&bytes, rules.limit)).await {
            Ok(Ok(bytes)) => Ok(Self(bytes.into())),
            Ok(Err(error)) => Err(refused(error)),
            Err(error) => Err(error.into_response()),
        }
    }
}

/// Runs `parse` on a body of `size` bytes, on a blocking thread if the body is large.
///
/// # Errors
///
/// When the server shuts down before `parse` has begun.
pub(crate) async fn parse_body<T: Send + 'static>(
    size: usize,
    parse: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RequestError> {
    if size <= LARGE {
        return Ok(parse());
    }
    on_blocking_thread(parse).await
}

async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RequestError> {
    match spawn_blocking(work).await {
        Ok(value) => Ok(value),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(RequestError::shutting_down()),
        },
    }
}

/// Accepts JSON in UTF-8. A body without `Content-Type` counts as JSON.
fn check_content_type(headers: &HeaderMap) -> Result<(), Refused> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let text = value.to_str().unwrap_or("").to_ascii_lowercase();
    let mut parts = text.split(';').map(str::trim);
    let is_json = parts.next() == Some("application/json");
    let charset = parts.find_map(|part| part.strip_prefix("charset="));
    let is_utf8 = charset.is_none_or(|set| matches!(set.trim_matches('"'), "utf-8" | "utf8"));
    let message = match (is_json, is_utf8) {
        (true, true) => return Ok(()),
        (false, _) => "the body must be JSON: set `Content-Type: application/json`",
        (true, false) => "the body must be encoded in UTF-8",
    };
    Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, message.to_owned()))
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, Refused> {
    match headers.get(header::CONTENT_ENCODING).map(AsRef::as_ref) {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(_) => {
            let message = "unsupported `Content-Encoding`: only `gzip` and `identity` are accepted";
            Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, message.to_owned()))
        }
    }
}

fn decompressed(gzip: &[u8], limit: usize) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    let most = (limit as u64).saturating_add(1);
    match MultiGzDecoder::new(gzip).take(most).read_to_end(&mut bytes) {
        Ok(length) if length <= limit => Ok(bytes),
        Ok(_) => Err(too_large(limit)),
        Err(_) => {
            let message = "the body is not valid gzip, or it is truncated";
            Err((StatusCode::BAD_REQUEST, message.to_owned()))
        }
    }
}

fn too_large(limit: usize) -> Refused {
    let message = format!("the body is larger than the limit of {limit} bytes");
    (StatusCode::PAYLOAD_TOO_LARGE, message)
}

fn too_slow(timeout: Duration) -> Refused {
    let seconds = timeout.as_secs();
    let message = format!("the body did not arrive within {seconds} s");
    (StatusCode::REQUEST_TIMEOUT, message)
}

fn incomplete(rejection: &BytesRejection, limit: usize) -> Refused {
    let status = rejection.status();
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        return too_large(limit);
    }
    (status, "the body could not be read completely".to_owned())
}
