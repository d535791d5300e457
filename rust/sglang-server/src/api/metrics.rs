//! `GET /metrics`: counters in the text format of Prometheus, version 0.0.4.
//!
//! `prometheus-client` 0.24 writes `OpenMetrics` only, which names counters differently in their
//! `# TYPE` lines and ends with `# EOF`. The counters are atomics of the server, so the crate is not
//! needed.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

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
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let status = &frontend.status;
    #[rustfmt::skip]
    let rows = [
        ("requests_total",         "counter", "Requests admitted.",                                     count(&status.admitted)),
        ("requests_refused_total", "counter", "Requests refused because a queue was full.",             count(&status.refused)),
        ("requests_aborted_total", "counter", "Requests whose client disconnected before the end.",     count(&status.aborted)),
        ("panics_total",           "counter", "Requests that failed because of a bug in this server.",  count(&status.panics)),
        ("scheduler_frames_total", "counter", "Frames from the scheduler.",                             count(&status.frames)),
        ("requests_live",          "gauge",   "Requests in progress.",                                  frontend.live() as u64),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in rows {
        let name = format!("sglang_{name}");
        let _ = write!(
            text,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
        );
    }
    text
}
