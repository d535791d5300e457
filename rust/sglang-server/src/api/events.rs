//! Server-sent events.
//!
//! Invariant: a stream that ends well ends with `[DONE]`; one that does not ends with an
//! error.

use std::convert::Infallible;

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use futures_util::{Stream, StreamExt as _};

/// What ends a good stream.
pub(crate) const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// What readers of events pass over.
pub(crate) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

const KIND: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// The event that carries `json`, which has no line breaks.
pub(crate) fn event(json: &str) -> Bytes {
    let mut event = Vec::with_capacity(json.len() + 8);
    event.extend(b"data: ");
    event.extend(json.as_bytes());
    event.extend(b"\n\n");
    event.into()
}

/// The answer whose body is `events`.
pub(crate) fn stream(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let headers = [
        (header::CONTENT_TYPE, KIND),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        // Proxies that buffer would hold every event back.
        (
            header::HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    let events = events.map(Ok::<_, Infallible>);
    (headers, Body::from_stream(events)).into_response()
}

/// Whether the body of `response` is events.
pub(crate) fn are_in<B>(response: &axum::http::Response<B>) -> bool {
    response.headers().get(header::CONTENT_TYPE) == Some(&KIND)
}
