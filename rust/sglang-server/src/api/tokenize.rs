//! `POST /tokenize` and `POST /detokenize`, which run the tokenizer only.

use std::sync::Arc;

use axum::{Json, body::Bytes, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    body::{JsonBody, parse_body},
    errors,
    json::from_body,
};
use crate::{
    error::RequestError, frontend::Frontend, message::ResponseEvent, tokenizer::AutoSpecials,
};

/// Maximum number of tokens in one `/detokenize`: other requests of the shard wait for it.
const MAX_TOKENS: usize = 1 << 20;

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
    } = parse_body(body.len(), move || from_body(&body)).await??;
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
    let size = body.len();
    let vocab_size = frontend.args.model_config.vocab_size;
    let parse = move || token_ids(&body, vocab_size);
    let (ids, skip) = parse_body(size, parse).await??;
    match frontend.detokenize(ids, skip)?.next().await {
        Some(ResponseEvent::Text(text)) => Ok(Json(json!({"text": text}))),
        Some(ResponseEvent::Failed(error)) => Err(error),
        _ => Err(errors::unexpected_event()),
    }
}

/// Parses a body: the token ids, and whether to leave special tokens out of the text.
fn token_ids(body: &Bytes, vocab_size: i64) -> Result<(Vec<i32>, bool), RequestError> {
    let Detokenize {
        tokens,
        skip_special_tokens,
    } = from_body(body)?;
    if tokens.len() > MAX_TOKENS {
        let message = format!(
            "`tokens` has {} token ids; at most {MAX_TOKENS} are detokenized in one request",
            tokens.len()
        );
        return Err(RequestError::field("tokens", message));
    }
    let id = |(at, id): (usize, i64)| {
        let id = i32::try_from(id)
            .ok()
            .filter(|id| (0..vocab_size).contains(&i64::from(*id)));
        id.ok_or_else(|| {
            let last = vocab_size - 1;
            let message = format!(
                "tokens[{at}] is out of range: the token ids of this model are 0 to {last}"
            );
            RequestError::field("tokens", message)
        })
    };
    let ids = tokens
        .into_iter()
        .enumerate()
        .map(id)
        .collect::<Result<_, _>>()?;
    Ok((ids, skip_special_tokens.unwrap_or(true)))
}
