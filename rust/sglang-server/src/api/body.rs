//! A request's body, before anybody looks into it.
//!
//! Invariant: no more than the limit is held of it, packed or unpacked, and it comes as
//! JSON or not at all.

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

/// A body of more bytes takes so long to read that other answers of the same thread would
/// wait for it.
const LARGE: usize = 256 << 10;

const TOO_LARGE: &str = "the body is larger than this server takes";

/// What a body may be; an extension of every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyRules {
    /// Most bytes, packed and unpacked.
    pub(crate) limit: usize,
    /// How long it may take to arrive.
    pub(crate) patience: Duration,
}

/// The bytes of a JSON body.
pub(crate) struct JsonBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let rules = Extension::<BodyRules>::from_request_parts(&mut parts, state).await;
        let Extension(rules) =
            rules.map_err(|_| refusal(StatusCode::INTERNAL_SERVER_ERROR, "no rules for bodies"))?;
        if let Err(why) = check_kind(&parts.headers) {
            return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let packed = match parts
            .headers
            .get(header::CONTENT_ENCODING)
            .map(AsRef::as_ref)
        {
            None | Some(b"identity") => false,
            Some(b"gzip") => true,
            Some(_) => {
                let message = "a body may be packed by gzip and by nothing else";
                return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
            }
        };
        // A client that says so beforehand is told before it sends it.
        if body.size_hint().lower() > rules.limit as u64 {
            return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, TOO_LARGE));
        }
        let request = Request::from_parts(parts, body);
        match timeout(rules.patience, Bytes::from_request(request, state)).await {
            Ok(Ok(bytes)) if packed => {
                // A thousandth of what comes out of it, at best.
                let unpack = move || unpacked(&bytes, rules.limit);
                match apart(unpack).await {
                    Ok(Ok(bytes)) => Ok(Self(bytes.into())),
                    Ok(Err((status, why))) => Err(refusal(status, why)),
                    Err(error) => Err(error.into_response()),
                }
            }
            Ok(Ok(bytes)) => Ok(Self(bytes)),
            Ok(Err(rejection)) => Err(unread(&rejection)),
            Err(_) => {
                let seconds = rules.patience.as_secs();
                let message = format!("the body has not arrived within {seconds} s");
                Err(refusal(StatusCode::REQUEST_TIMEOUT, &message))
            }
        }
    }
}

/// What `read` makes of a body of `size` bytes, on a thread of its own where that takes long.
///
/// # Errors
///
/// When the server shuts down before it has begun.
pub(crate) async fn reading<T: Send + 'static>(
    size: usize,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RequestError> {
    if size <= LARGE {
        return Ok(read());
    }
    apart(read).await
}

async fn apart<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RequestError> {
    match spawn_blocking(read).await {
        Ok(value) => Ok(value),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(RequestError::shutting_down()),
        },
    }
}

/// JSON, in UTF-8. A body of no named kind is taken for JSON.
fn check_kind(headers: &HeaderMap) -> Result<(), &'static str> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let text = kind.to_str().unwrap_or("").to_ascii_lowercase();
    let mut parts = text.split(';').map(str::trim);
    let json = parts.next() == Some("application/json");
    let charset = parts.find_map(|part| part.strip_prefix("charset="));
    let utf8 = charset.is_none_or(|set| matches!(set.trim_matches('"'), "utf-8" | "utf8"));
    match (json, utf8) {
        (true, true) => Ok(()),
        (false, _) => Err("the body must be JSON: set `Content-Type: application/json`"),
        (true, false) => Err("the body must be in UTF-8"),
    }
}

fn unpacked(packed: &[u8], limit: usize) -> Result<Vec<u8>, (StatusCode, &'static str)> {
    let mut bytes = Vec::new();
    let most = (limit as u64).saturating_add(1);
    match MultiGzDecoder::new(packed)
        .take(most)
        .read_to_end(&mut bytes)
    {
        Ok(length) if length <= limit => Ok(bytes),
        Ok(_) => Err((StatusCode::PAYLOAD_TOO_LARGE, TOO_LARGE)),
        Err(_) => Err((
            StatusCode::BAD_REQUEST,
            "the body is said to be gzip, and is not, or not all of it",
        )),
    }
}

fn unread(rejection: &BytesRejection) -> Response {
    let status = rejection.status();
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        return refusal(status, TOO_LARGE);
    }
    refusal(status, "the body could not be read to its end")
}
