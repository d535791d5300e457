//! Server-sent events.
//!
//! Invariant: a stream that ends well ends with `[DONE]`; one that does not ends with an
//! error.

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

use super::{PANICKED, errors};

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

/// The answer whose body is `events`. A panic among them is counted and told, and ends no
/// other answer of its connection.
pub(crate) fn stream(
    events: impl Stream<Item = Bytes> + Send + 'static,
    panics: Arc<AtomicU64>,
) -> Response {
    let headers = [
        (header::CONTENT_TYPE, KIND),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        // Proxies that buffer would hold every event back.
        (
            header::HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    let events = AssertUnwindSafe(events).catch_unwind().map(move |told| {
        let told = told.unwrap_or_else(|_| {
            panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!("an answer panicked amid its events");
            event(&errors::body(500, PANICKED))
        });
        Ok::<_, Infallible>(told)
    });
    (headers, Body::from_stream(events)).into_response()
}

/// Whether the body of `response` is events.
pub(crate) fn is_event_stream<B>(response: &axum::http::Response<B>) -> bool {
    response.headers().get(header::CONTENT_TYPE) == Some(&KIND)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::Ordering};

    use axum::body::to_bytes;
    use futures_util::{StreamExt as _, stream::iter};

    use super::{DONE, event, stream};

    #[tokio::test]
    async fn a_panic_amid_events_is_an_event_and_is_counted() {
        let panics = Arc::default();
        let events = iter(0..3).map(|number| {
            assert_ne!(1, number, "on purpose");
            event(&number.to_string())
        });
        let answer = stream(events, Arc::clone(&panics));
        let body = to_bytes(answer.into_body(), 1000).await.unwrap();
        let error = r#"{"error":{"code":500,"message":"internal: the answer failed"}}"#;
        assert_eq!(format!("data: 0\n\ndata: {error}\n\n"), body);
        assert_eq!(1, panics.load(Ordering::Relaxed));

        let good = stream(iter([event("0"), DONE]), Arc::clone(&panics));
        let body = to_bytes(good.into_body(), 1000).await.unwrap();
        assert_eq!("data: 0\n\ndata: [DONE]\n\n", body);
        assert_eq!(1, panics.load(Ordering::Relaxed));
    }
}
