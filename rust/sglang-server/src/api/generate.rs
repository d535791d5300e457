//! `POST /generate`.
//!
//! Invariant: a request is refused only before the first byte of the response. In a batch, each
//! generation succeeds or fails independently.

use std::{sync::Arc, time::Instant};

use axum::{
    body::Bytes,
    extract::State,
    http::header,
    response::{IntoResponse as _, Response},
};
use futures_util::{
    StreamExt as _,
    future::join_all,
    stream::{self, Stream},
};

use super::{
    body::{JsonBody, parse_body},
    errors, events,
    frame::Frames,
};
use crate::{
    error::RequestError,
    frontend::{Answer, Frontend},
    message::{BatchLimit, GenerateBody, GenerateRequest, ResponseEvent},
};

/// A generation in progress, and its JSON so far.
struct Generation {
    answer: Answer,
    frames: Frames,
    start: Instant,
    cumulative: bool,
    /// An event that was received, but belongs to the next frame.
    next: Option<ResponseEvent>,
}

pub(crate) async fn generate(
    State(frontend): State<Arc<Frontend>>,
    JsonBody(body): JsonBody,
) -> Response {
    match answer(&frontend, body).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

/// Parses a body: the requests, whether to stream, and whether they are a batch.
fn requests(
    frontend: &Frontend,
    body: &Bytes,
) -> Result<(Vec<GenerateRequest>, bool, bool), RequestError> {
    let mut body = GenerateBody::from_json(body)?;
    if let Some(preferred) = &frontend.args.preferred_sampling_params {
        body.apply_preferred_sampling(preferred);
    }
    let stream = body.stream();
    let limit = BatchLimit::new(frontend.config.max_requests);
    let (requests, is_batch) = body.into_requests(limit)?;
    Ok((requests, stream, is_batch))
}

async fn answer(frontend: &Arc<Frontend>, body: Bytes) -> Result<Response, RequestError> {
    let size = body.len();
    let settings = Arc::clone(frontend);
    let parse = move || requests(&settings, &body);
    let (requests, stream, is_batch) = parse_body(size, parse).await??;
    let mut generations = submit(frontend, requests, stream, is_batch)?;
    let panics = Arc::clone(&frontend.status.panics);
    if is_batch {
        return Ok(if stream {
            events::stream(multiplexed(generations), panics)
        } else {
            let answers = join_all(generations.iter_mut().map(Generation::last_frame)).await;
            let answers: Vec<String> = answers
                .into_iter()
                .map(|answer| answer.unwrap_or_else(|error| errors::body_of(&error)))
                .collect();
            json(format!("[{}]", answers.join(",")))
        });
    }
    let Some(mut generation) = generations.pop() else {
        return Err(RequestError::Internal(
            "the body was accepted without a request".into(),
        ));
    };
    if !stream {
        return generation.last_frame().await.map(json);
    }
    // The status is sent with the first event. An error before that still has its own status.
    let first = generation.next_frame().await?;
    Ok(events::stream(single(generation, first), panics))
}

/// Submits all requests of a body, or none.
fn submit(
    frontend: &Frontend,
    requests: Vec<GenerateRequest>,
    stream: bool,
    is_batch: bool,
) -> Result<Vec<Generation>, RequestError> {
    let cumulative = !(stream && frontend.args.incremental_streaming_output);
    let start = Instant::now();
    let mut generations: Vec<Generation> = Vec::with_capacity(requests.len());
    let mut name = None;
    for (index, request) in requests.into_iter().enumerate() {
        // The `n` generations of one prompt are adjacent and share the client's request id.
        let held = match name.take() {
            Some((held, client)) if client == request.rid.client_facing() => held,
            _ => frontend.name(&request.rid)?,
        };
        name = Some((held.clone(), request.rid.client_facing().to_owned()));
        let frames = Frames::new(
            &request,
            is_batch.then_some(index).filter(|_| stream),
            cumulative,
        );
        // If one request is refused, those before it are dropped, which aborts them.
        let answer = frontend.generate(Box::new(request), Some(held))?;
        generations.push(Generation {
            answer,
            frames,
            start,
            cumulative,
            next: None,
        });
    }
    Ok(generations)
}

/// A frame of a generation.
struct Frame {
    json: String,
    is_last: bool,
}

impl Generation {
    /// Waits for the next frame.
    ///
    /// In a cumulative stream, steps that are already in the queue are merged into one frame.
    async fn next_frame(&mut self) -> Result<Frame, RequestError> {
        let event = match self.next.take() {
            Some(event) => Some(event),
            None => self.answer.next().await,
        };
        let mut is_last = self.take(event)?;
        while self.cumulative && !is_last {
            match self.answer.next_now() {
                Some(event @ ResponseEvent::Chunk(_)) => is_last = self.take(Some(event))?,
                Some(event) => {
                    self.next = Some(event);
                    break;
                }
                None => break,
            }
        }
        Ok(Frame {
            json: self.frames.frame(self.start.elapsed()),
            is_last,
        })
    }

    /// Waits for the last frame, which has all output.
    async fn last_frame(&mut self) -> Result<String, RequestError> {
        loop {
            let event = self.answer.next().await;
            if self.take(event)? {
                return Ok(self.frames.frame(self.start.elapsed()));
            }
        }
    }

    /// Appends an event; returns whether it is the last one.
    fn take(&mut self, event: Option<ResponseEvent>) -> Result<bool, RequestError> {
        match event {
            Some(ResponseEvent::Chunk(chunk)) => {
                let is_last = chunk.finish.is_some();
                self.frames.push(chunk);
                Ok(is_last)
            }
            Some(ResponseEvent::Failed(error)) => Err(error),
            Some(ResponseEvent::Control(_) | ResponseEvent::Text(_)) | None => {
                Err(errors::unexpected_event())
            }
        }
    }
}

/// The events of one generation. Its `first` frame has already arrived.
fn single(generation: Generation, first: Frame) -> impl Stream<Item = Bytes> {
    stream::unfold(Some((generation, Some(first))), async |state| {
        let (mut generation, first) = state?;
        let frame = match first {
            Some(first) => Ok(first),
            None => generation.next_frame().await,
        };
        Some(match frame {
            Ok(Frame {
                json,
                is_last: false,
            }) => (events::event(&json), Some((generation, None))),
            Ok(Frame { json, .. }) => ([events::event(&json), events::DONE].concat().into(), None),
            Err(error) => (events::event(&errors::body_of(&error)), None),
        })
    })
}

/// The events of a batch, in order of arrival. An error ends only its own generation.
fn multiplexed(generations: Vec<Generation>) -> impl Stream<Item = Bytes> {
    let each = generations
        .into_iter()
        .enumerate()
        .map(|(index, generation)| {
            Box::pin(stream::unfold(Some((index, generation)), next_of_batch))
        });
    stream::select_all(each).chain(stream::once(async { events::DONE }))
}

/// The next event of the generation at an index.
async fn next_of_batch(
    state: Option<(usize, Generation)>,
) -> Option<(Bytes, Option<(usize, Generation)>)> {
    let (index, mut generation) = state?;
    Some(match generation.next_frame().await {
        Ok(Frame { json, is_last }) => (
            events::event(&json),
            (!is_last).then_some((index, generation)),
        ),
        Err(error) => (events::event(&errors::body_with_index(&error, index)), None),
    })
}

fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
