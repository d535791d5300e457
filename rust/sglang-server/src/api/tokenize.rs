//! `POST /tokenize` and `POST /detokenize`: the tokenizer, without a generation.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{body::JsonBody, json::from_body};
use crate::{
    error::RequestError, frontend::Frontend, message::ResponseEvent, tokenizer::AutoSpecials,
};

#[derive(Deserialize)]
struct Tokenize {
    prompt: String,
    add_special_tokens: Option<bool>,
}

pub(crate) async fn tokenize(
    State(frontend): State<Arc<Frontend>>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, RequestError> {
    let Tokenize {
        prompt,
        add_special_tokens,
    } = from_body(&body)?;
    let special = match add_special_tokens {
        Some(false) => AutoSpecials::Absent,
        Some(true) | None => AutoSpecials::Added,
    };
    let tokens = frontend.tokenize(prompt, special).await?;
    Ok(Json(json!({
        "count": tokens.len(),
        "tokens": tokens,
        "max_model_len": frontend.args.model_config.context_len,
    })))
}

#[derive(Deserialize)]
struct Detokenize {
    tokens: Vec<i64>,
    skip_special_tokens: Option<bool>,
}

pub(crate) async fn detokenize(
    State(frontend): State<Arc<Frontend>>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, RequestError> {
    let Detokenize {
        tokens,
        skip_special_tokens,
    } = from_body(&body)?;
    let vocab_size = frontend.args.model_config.vocab_size;
    let id = |(at, id): (usize, i64)| {
        let id = i32::try_from(id)
            .ok()
            .filter(|id| (0..vocab_size).contains(&i64::from(*id)));
        id.ok_or_else(|| {
            let last = vocab_size - 1;
            let message = format!("tokens[{at}] is no token of this model: it has 0 to {last}");
            RequestError::field("tokens", message)
        })
    };
    let ids = tokens
        .into_iter()
        .enumerate()
        .map(id)
        .collect::<Result<_, _>>()?;
    let skip = skip_special_tokens.unwrap_or(true);
    match frontend.detokenize(ids, skip)?.next().await {
        Some(ResponseEvent::Text(text)) => Ok(Json(json!({"text": text}))),
        Some(ResponseEvent::Failed(error)) => Err(error),
        _ => Err(RequestError::Internal("an answer of another kind".into())),
    }
}
