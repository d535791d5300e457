//! Requests to the scheduler that are no generations: `/flush_cache`, `/abort_request`.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{body::JsonBody, json::from_body};
use crate::{
    error::RequestError,
    frontend::{Answer, Frontend},
    message::ResponseEvent,
    wire,
};

/// How long a scheduler may take for an answer that it need not compute.
const PATIENCE: Duration = Duration::from_secs(30);

/// The map that the scheduler answers with.
pub(crate) async fn answer_of(mut answer: Answer) -> Result<Map<String, Value>, RequestError> {
    let event = timeout(PATIENCE, answer.next()).await.map_err(|_| {
        let seconds = PATIENCE.as_secs();
        RequestError::Unavailable(format!("the scheduler has not answered for {seconds} s"))
    })?;
    match event {
        Some(ResponseEvent::Control(payload)) => wire::control_result(&payload).map_err(|error| {
            RequestError::Codec(format!("a control result is no map: {}", error.reason))
        }),
        Some(ResponseEvent::Failed(error)) => Err(error),
        _ => Err(RequestError::Internal("an answer of another kind".into())),
    }
}

pub(crate) async fn flush_cache(
    State(frontend): State<Arc<Frontend>>,
) -> Result<Json<Value>, RequestError> {
    let result = answer_of(frontend.control(wire::flush_cache)?).await?;
    let field = |name| result.get(name).cloned().unwrap_or_default();
    Ok(Json(
        json!({"success": field("success"), "message": field("message")}),
    ))
}

/// Which requests to give up: one by name, or all.
#[derive(Deserialize)]
struct Abort {
    rid: Option<String>,
    abort_all: Option<bool>,
}

/// Aborts what has the name now. A name that nothing has is no error: it may have ended.
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
            let message = "name a request in `rid`, or set `abort_all`";
            return Err(RequestError::invalid(message));
        }
    };
    Ok(Json(json!({"success": true, "aborted": aborted})))
}
