//! HTTP: what is served under which path, and how answers and errors look.
//!
//! Invariant: a path or a method that is not served is told so in the shape of every other
//! error.

mod body;
mod connection;
mod control;
mod errors;
mod events;
mod frame;
mod generate;
mod health;
mod info;
mod json;
pub(crate) mod listener;
mod metrics;
pub(crate) mod serve;
mod tokenize;

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Extension, Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{StatusCode, Uri},
    middleware::{self, Next},
    response::Response,
    routing::{get, post},
};

use futures_util::FutureExt as _;

use crate::frontend::Frontend;
use body::BodyRules;

/// What a client is told of a bug.
const PANICKED: &str = "internal: the answer failed";

/// All routes.
pub(crate) fn router(frontend: Arc<Frontend>) -> Router {
    let rules = BodyRules {
        limit: frontend.config.body_limit,
        patience: frontend.config.read_timeout,
    };
    let panics = Arc::clone(&frontend.signs.panics);
    Router::new()
        .route("/generate", post(generate::generate))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/abort_request", post(control::abort_request))
        .route("/flush_cache", post(control::flush_cache))
        .route("/health", get(health::health))
        .route("/health_generate", get(health::health_generate))
        .route("/model_info", get(info::model_info))
        .route("/get_model_info", get(info::model_info))
        .route("/server_info", get(info::server_info))
        .route("/get_server_info", get(info::server_info))
        .route("/metrics", get(metrics::metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(other_method)
        .layer(DefaultBodyLimit::max(rules.limit))
        .layer(Extension(rules))
        .layer(middleware::from_fn_with_state(panics, without_panics))
        .with_state(frontend)
}

/// A bug in one answer is an answer of 500, and the connection goes on.
async fn without_panics(
    State(panics): State<Arc<AtomicU64>>,
    request: Request,
    next: Next,
) -> Response {
    let uri = request.uri().clone();
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answer.unwrap_or_else(|_| {
        panics.fetch_add(1, Ordering::Relaxed);
        let path = shown(&uri);
        tracing::error!(path, "an answer panicked");
        errors::refusal(StatusCode::INTERNAL_SERVER_ERROR, PANICKED)
    })
}

/// A path, as far as it is worth telling.
fn shown(uri: &Uri) -> String {
    uri.path().chars().take(100).collect()
}

async fn unknown_path(request: Request) -> Response {
    let path = shown(request.uri());
    errors::refusal(
        StatusCode::NOT_FOUND,
        &format!("nothing is served under `{path}`"),
    )
}

async fn other_method(request: Request) -> Response {
    let message = format!("`{}` is not for this path", request.method());
    errors::refusal(StatusCode::METHOD_NOT_ALLOWED, &message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::{
        Router,
        body::{Body, to_bytes},
        http::Request,
        middleware,
        routing::get,
    };
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::{AtomicU64, Ordering, without_panics};

    #[tokio::test]
    async fn a_handler_that_panics_answers_500_and_is_counted() {
        let panics = Arc::new(AtomicU64::new(0));
        let guard = middleware::from_fn_with_state(Arc::clone(&panics), without_panics);
        let broken = || async { panic!("on purpose") as &str };
        let routes = Router::new()
            .route("/broken", get(broken))
            .route("/whole", get(|| async { "whole" }))
            .layer(guard);
        let service = TowerToHyperService::new(routes);
        for count in 1..=3 {
            for (path, status, body) in [
                (
                    "/broken",
                    500,
                    r#"{"error":{"code":500,"message":"internal: the answer failed"}}"#,
                ),
                ("/whole", 200, "whole"),
            ] {
                let request = Request::get(path).body(Body::empty()).unwrap();
                let answer = service.call(request).await.unwrap();
                assert_eq!(status, answer.status());
                let bytes = to_bytes(answer.into_body(), 1000).await.unwrap();
                assert_eq!(body, bytes);
            }
            assert_eq!(count, panics.load(Ordering::Relaxed));
        }
    }
}
