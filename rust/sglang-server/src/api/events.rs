//! Server-sent events.
//!
//! Invariant: a stream that succeeds ends with `[DONE]`; a stream that fails ends with an error
//! event.

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use futures_util::{Stream, StreamExt as _};
use sglang_http::EVENT_STREAM;

use super::{PANICKED, errors};

/// The last event of a stream that succeeds.
pub(crate) const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// The event with the data `json`, which must not contain line breaks.
pub(crate) fn event(json: &str) -> Bytes {
    let mut event = Vec::with_capacity(json.len() + 8);
    event.extend(b"data: ");
    event.extend(json.as_bytes());
    event.extend(b"\n\n");
    event.into()
}

/// The response whose body is `events`. A panic in the stream is counted, and sent as an error
/// event. It does not end the connection.
pub(crate) fn stream(
    events: impl Stream<Item = Bytes> + Send + 'static,
    panics: Arc<AtomicU64>,
) -> Response {
    let headers = [
        (header::CONTENT_TYPE, EVENT_STREAM),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        // Without this header some proxies buffer the events.
        (
            header::HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    let events = AssertUnwindSafe(events).catch_unwind().map(move |next| {
        let next = next.unwrap_or_else(|_| {
            panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!("a stream of events panicked");
            event(&errors::body(500, PANICKED))
        });
        Ok::<_, Infallible>(next)
    });
    (headers, Body::from_stream(events)).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::Ordering};

    use axum::body::to_bytes;
    use futures_util::{StreamExt as _, stream::iter};

    use super::{DONE, event, stream};

    #[tokio::test]
    async fn panic_in_a_stream_is_an_error_event_and_is_counted() {
        let panics = Arc::default();
        let events = iter(0..3).map(|number| {
            assert_ne!(1, number, "on purpose");
            event(&number.to_string())
        });
        let response = stream(events, Arc::clone(&panics));
        let body = to_bytes(response.into_body(), 1000).await.unwrap();
        let error = r#"{"error":{"code":500,"message":"internal: the request failed because of a bug in this server"}}"#;
        assert_eq!(format!("data: 0\n\ndata: {error}\n\n"), body);
        assert_eq!(1, panics.load(Ordering::Relaxed));

        let succeeding = stream(iter([event("0"), DONE]), Arc::clone(&panics));
        let body = to_bytes(succeeding.into_body(), 1000).await.unwrap();
        assert_eq!("data: 0\n\ndata: [DONE]\n\n", body);
        assert_eq!(1, panics.load(Ordering::Relaxed));
    }
}
