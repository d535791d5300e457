//! HTTP: the routes, their responses and their errors.
//!
//! Invariant: the error for an unknown path or method has the same JSON form as any other error.

mod body;
mod control;
mod errors;
mod events;
mod frame;
mod generate;
mod health;
mod info;
mod json;
mod metrics;
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

/// The message to a client whose request panicked.
const PANICKED: &str = "internal: the request failed because of a bug in this server";

/// All routes.
pub(crate) fn router(frontend: Arc<Frontend>) -> Router {
    let rules = BodyRules {
        limit: frontend.config.body_limit,
        timeout: frontend.config.read_timeout,
    };
    let panics = Arc::clone(&frontend.status.panics);
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
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(rules.limit))
        .layer(Extension(rules))
        .layer(middleware::from_fn_with_state(panics, catch_panics))
        .with_state(frontend)
}

/// Answers 500 when a handler panics, and keeps the connection open.
///
/// `tower_http::catch_panic` does not fit: its handler gets only the payload of the panic, so it
/// could not log the path, and it boxes the body of every response.
async fn catch_panics(
    State(panics): State<Arc<AtomicU64>>,
    request: Request,
    next: Next,
) -> Response {
    let uri = request.uri().clone();
    let response = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    response.unwrap_or_else(|_| {
        panics.fetch_add(1, Ordering::Relaxed);
        let path = short_path(&uri);
        tracing::error!(path, "a handler panicked");
        errors::refusal(StatusCode::INTERNAL_SERVER_ERROR, PANICKED)
    })
}

/// The path, cut to 100 characters for a message.
fn short_path(uri: &Uri) -> String {
    uri.path().chars().take(100).collect()
}

async fn unknown_path(request: Request) -> Response {
    let path = short_path(request.uri());
    errors::refusal(
        StatusCode::NOT_FOUND,
        &format!("no route for path `{path}`"),
    )
}

async fn unknown_method(request: Request) -> Response {
    let message = format!("method `{}` is not allowed for this path", request.method());
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

    use super::{AtomicU64, Ordering, catch_panics};

    #[tokio::test]
    async fn panic_in_a_handler_is_answered_with_500_and_is_counted() {
        let panics = Arc::new(AtomicU64::new(0));
        let guard = middleware::from_fn_with_state(Arc::clone(&panics), catch_panics);
        let panics_always = || async { panic!("on purpose") as &str };
        let routes = Router::new()
            .route("/panics", get(panics_always))
            .route("/works", get(|| async { "works" }))
            .layer(guard);
        let service = TowerToHyperService::new(routes);
        for count in 1..=3 {
            for (path, status, body) in [
                (
                    "/panics",
                    500,
                    r#"{"error":{"code":500,"message":"internal: the request failed because of a bug in this server"}}"#,
                ),
                ("/works", 200, "works"),
            ] {
                let request = Request::get(path).body(Body::empty()).unwrap();
                let response = service.call(request).await.unwrap();
                assert_eq!(status, response.status());
                let bytes = to_bytes(response.into_body(), 1000).await.unwrap();
                assert_eq!(body, bytes);
            }
            assert_eq!(count, panics.load(Ordering::Relaxed));
        }
    }
}
