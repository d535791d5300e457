//! `GET /metrics`: counters in the text format of Prometheus.

use std::{fmt::Write as _, sync::Arc, sync::atomic::Ordering};

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};

use crate::frontend::Frontend;

pub(crate) async fn metrics(State(frontend): State<Arc<Frontend>>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text(&frontend)).into_response()
}

fn text(frontend: &Frontend) -> String {
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let signs = &frontend.signs;
    let rows = [
        (
            "sglang_requests_total",
            "counter",
            "Requests admitted.",
            count(&signs.admitted),
        ),
        (
            "sglang_requests_refused_total",
            "counter",
            "Requests for which there was no room.",
            count(&signs.refused),
        ),
        (
            "sglang_requests_aborted_total",
            "counter",
            "Requests whose client left before their end.",
            count(&signs.aborted),
        ),
        (
            "sglang_panics_total",
            "counter",
            "Requests that failed because of a bug in this server.",
            count(&signs.panics),
        ),
        (
            "sglang_scheduler_frames_total",
            "counter",
            "Frames from the scheduler.",
            count(&signs.frames),
        ),
        (
            "sglang_requests_live",
            "gauge",
            "Requests that have not ended.",
            frontend.live() as u64,
        ),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in rows {
        let _ = write!(
            text,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
        );
    }
    text
}
