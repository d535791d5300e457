//! `GET /health` reports whether the server accepts requests. `GET /health_generate` reports
//! whether the scheduler generates.
//!
//! Invariant: `/health` reads only flags, so its response time does not depend on the load.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use tokio::time::{Instant, sleep};

use super::errors::refusal;
use crate::{
    error::RequestError,
    frontend::Frontend,
    ids::Rid,
    message::{GenerateRequest, Prompt, SamplingParams, request::Bootstrap},
};

/// How often a waiting probe reads the counter of scheduler frames.
const POLL: Duration = Duration::from_millis(50);

/// Placeholder host for a probe in a disaggregated pair: the other half takes no part in a probe.
const NO_PEER: &str = "2.2.2.2";

pub(crate) async fn health(State(frontend): State<Arc<Frontend>>) -> Response {
    match unhealthy(&frontend) {
        None => StatusCode::OK.into_response(),
        Some(reason) => refusal(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

/// The reason why the server cannot answer requests, if there is one.
fn unhealthy(frontend: &Frontend) -> Option<String> {
    if frontend.status.draining.is_cancelled() {
        return Some("the server is shutting down".into());
    }
    let limit = frontend.config.heartbeat_limit;
    match frontend.status.since_beat() {
        None => Some("the scheduler has not begun to take requests".into()),
        Some(age) if age > limit => {
            let seconds = age.as_secs();
            Some(format!(
                "the scheduler has not taken requests for {seconds} s"
            ))
        }
        Some(_) => None,
    }
}

pub(crate) async fn health_generate(State(frontend): State<Arc<Frontend>>) -> Response {
    if !frontend.config.health_generation {
        return health(State(frontend)).await;
    }
    match probe(&frontend).await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => error.into_response(),
    }
}

/// Requests one token and waits for a frame of any request: a busy scheduler sends others first.
async fn probe(frontend: &Frontend) -> Result<(), RequestError> {
    let frames = || frontend.status.frames.load(Ordering::Relaxed);
    let before = frames();
    // Dropped on every return, which aborts the probe.
    let _answer = frontend.generate(Box::new(probe_request(frontend)), None)?;
    let deadline = Instant::now() + frontend.config.health_timeout;
    while frames() == before {
        if Instant::now() >= deadline {
            let seconds = frontend.config.health_timeout.as_secs_f64();
            let message = format!("the scheduler has sent nothing for {seconds} s");
            return Err(RequestError::Unavailable(message));
        }
        sleep(POLL).await;
    }
    Ok(())
}

fn probe_request(frontend: &Frontend) -> GenerateRequest {
    let pair = frontend.args.disaggregation_mode.is_pair();
    GenerateRequest {
        sampling: SamplingParams {
            max_new_tokens: Some(1),
            // Temperature 0 in normalized form: `top_k` 1 and temperature 1.
            temperature: 1.0,
            top_k: 1,
            ..SamplingParams::default()
        },
        bootstrap: Bootstrap {
            host: pair.then(|| NO_PEER.into()),
            room: pair.then_some(0),
            ..Bootstrap::default()
        },
        ..GenerateRequest::plain(Rid::health_check(), Prompt::Ids(vec![0]))
    }
}
