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

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Extension, Router,
    extract::{DefaultBodyLimit, Request},
    http::StatusCode,
    middleware::{self, Next},
    response::Response,
    routing::{get, post},
};

use futures_util::FutureExt as _;

use crate::frontend::Frontend;
use body::BodyRules;

/// All routes.
pub(crate) fn router(frontend: Arc<Frontend>) -> Router {
    let rules = BodyRules {
        limit: frontend.config.body_limit,
        patience: frontend.config.read_timeout,
    };
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
        .layer(middleware::from_fn(without_panics))
        .with_state(frontend)
}

/// A bug in one answer is an answer of 500, and the connection goes on.
async fn without_panics(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => errors::refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal: the answer failed",
        ),
    }
}

async fn unknown_path(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(100).collect();
    errors::refusal(
        StatusCode::NOT_FOUND,
        &format!("nothing is served under `{path}`"),
    )
}

async fn other_method(request: Request) -> Response {
    let message = format!("`{}` is not for this path", request.method());
    errors::refusal(StatusCode::METHOD_NOT_ALLOWED, &message)
}
