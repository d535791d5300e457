//! Baseline for `ci/bench.py server`: an axum server with fixed answers, which measures the cost of
//! HTTP alone.
//!
//!     bare_axum ANSWERS.json
//!
//! The file is a JSON object that maps a request body to the pieces of its answer: one complete
//! answer, or a list of events. Each event is written separately, like tokens of a stream.
//!
//! Prints its address on stdout, in one line, and serves until it is killed.

use std::{
    collections::HashMap,
    convert::Infallible,
    env,
    error::Error,
    fs,
    io::{self, Write as _},
    sync::Arc,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::post,
    serve::ListenerExt as _,
};
use futures_util::{StreamExt as _, stream};
use tokio::{net::TcpListener, task::yield_now};

type Answers = Arc<HashMap<String, Vec<Bytes>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: bare_axum ANSWERS.json")?;
    let answers: HashMap<String, Vec<String>> = serde_json::from_slice(&fs::read(path)?)?;
    let bytes = |pieces: Vec<String>| pieces.into_iter().map(Bytes::from).collect();
    let answers = answers
        .into_iter()
        .map(|(body, pieces)| (body, bytes(pieces)))
        .collect();
    let routes = Router::new()
        .route("/generate", post(generate))
        .with_state(Arc::new(answers));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(io::stdout(), "serving on http://{}", listener.local_addr()?)?;
    let listener = listener.tap_io(|connection| {
        // Without TCP_NODELAY events are delayed and merged. The real server sets it too.
        let _ = connection.set_nodelay(true);
    });
    axum::serve(listener, routes).await?;
    Ok(())
}

async fn generate(State(answers): State<Answers>, body: String) -> Response {
    match answers.get(&body).map(Vec::as_slice) {
        None => StatusCode::NOT_FOUND.into_response(),
        Some([whole]) if !whole.starts_with(b"data:") => {
            ([(header::CONTENT_TYPE, "application/json")], whole.clone()).into_response()
        }
        Some(events) => {
            let events = stream::iter(events.to_vec()).then(async |event| {
                yield_now().await;
                Ok::<_, Infallible>(event)
            });
            let headers = [
                (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
                (header::CACHE_CONTROL, "no-cache"),
            ];
            (headers, Body::from_stream(events)).into_response()
        }
    }
}
