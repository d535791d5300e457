//! Control requests to the scheduler: `/flush_cache` and `/abort_request`.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{body::JsonBody, errors, json::from_body};
use crate::{
    error::RequestError,
    frontend::{Answer, Frontend},
    message::ResponseEvent,
    wire,
};

/// How long the scheduler may take to answer a control message.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits for the scheduler's answer, which is a map.
pub(crate) async fn control_result(mut answer: Answer) -> Result<Map<String, Value>, RequestError> {
    let event = timeout(TIMEOUT, answer.next()).await.map_err(|_| {
        let seconds = TIMEOUT.as_secs();
        RequestError::Unavailable(format!("the scheduler did not answer within {seconds} s"))
    })?;
    match event {
        Some(ResponseEvent::Control(payload)) => wire::control_result(&payload).map_err(|error| {
            RequestError::Codec(format!("a control result is not a map: {}", error.reason))
        }),
        Some(ResponseEvent::Failed(error)) => Err(error),
        _ => Err(errors::unexpected_event()),
    }
}

pub(crate) async fn flush_cache(
    State(frontend): State<Arc<Frontend>>,
) -> Result<Json<Value>, RequestError> {
    let result = control_result(frontend.control(wire::flush_cache)?).await?;
    let field = |name| result.get(name).cloned().unwrap_or_default();
    Ok(Json(
        json!({"success": field("success"), "message": field("message")}),
    ))
}

/// The requests to abort: one by its id, or all.
#[derive(Deserialize)]
struct Abort {
    rid: Option<String>,
    abort_all: Option<bool>,
}

/// Aborts the requests with this id. An unknown id is accepted: the request may have ended.
pub(crate) async fn abort_request(
    State(frontend): State<Arc<Frontend>>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, RequestError> {
    let aborted = match from_body(&body)? {
        Abort {
            abort_all: Some(true),
            ..
        } => frontend.abort(None),
        Abort { rid: Some(rid), .. } => frontend.abort(Some(&rid)),
        Abort { rid: None, .. } => {
            let message = "set `rid` to the id of a request, or `abort_all` to true";
            return Err(RequestError::invalid(message));
        }
    };
    Ok(Json(json!({"success": true, "aborted": aborted})))
}
