//! `POST /generate`.
//!
//! Invariant: whatever can be refused is refused before the first byte of an answer. In a
//! list each answer has its own good or bad end.

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
    body::{JsonBody, reading},
    errors, events,
    frame::Frames,
};
use crate::{
    error::RequestError,
    frontend::{Answer, Frontend},
    message::{BatchLimit, GenerateBody, GenerateRequest, ResponseEvent},
};

/// One answer on its way, and what it looks like so far.
struct Generation {
    answer: Answer,
    frames: Frames,
    start: Instant,
    cumulative: bool,
    /// What was looked at and does not fit the same frame.
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

/// What a body asks for; whether as a stream, and whether in a list.
fn requests(
    frontend: &Frontend,
    body: &Bytes,
) -> Result<(Vec<GenerateRequest>, bool, bool), RequestError> {
    let mut body = GenerateBody::from_json(body)?;
    if let Some(preferred) = &frontend.args.preferred_sampling_params {
        body.apply_preferred_sampling(preferred);
    }
    let stream = body.stream();
    let limit = BatchLimit::new(frontend.config.most_requests);
    let (requests, is_list) = body.into_requests(limit)?;
    Ok((requests, stream, is_list))
}

async fn answer(frontend: &Arc<Frontend>, body: Bytes) -> Result<Response, RequestError> {
    let size = body.len();
    let settings = Arc::clone(frontend);
    let read = move || requests(&settings, &body);
    let (requests, stream, is_list) = reading(size, read).await??;
    let mut generations = submit(frontend, requests, stream, is_list)?;
    let panics = Arc::clone(&frontend.signs.panics);
    if is_list {
        return Ok(if stream {
            events::stream(multiplexed(generations), panics)
        } else {
            let answers = join_all(generations.iter_mut().map(Generation::last)).await;
            let answers: Vec<String> = answers
                .into_iter()
                .map(|answer| answer.unwrap_or_else(|error| errors::body_of(&error)))
                .collect();
            json(format!("[{}]", answers.join(",")))
        });
    }
    let Some(mut generation) = generations.pop() else {
        return Err(RequestError::Internal("a call without a request".into()));
    };
    if !stream {
        return generation.last().await.map(json);
    }
    // Headers say 200, so they wait until there is something good to say.
    let first = generation.step().await?;
    Ok(events::stream(single(generation, first), panics))
}

/// All requests of a call, or none.
fn submit(
    frontend: &Frontend,
    requests: Vec<GenerateRequest>,
    stream: bool,
    is_list: bool,
) -> Result<Vec<Generation>, RequestError> {
    let cumulative = !(stream && frontend.args.incremental_streaming_output);
    let start = Instant::now();
    let mut generations: Vec<Generation> = Vec::with_capacity(requests.len());
    let mut name = None;
    for (index, request) in requests.into_iter().enumerate() {
        // Answers to one prompt follow one another and share its name.
        let held = match name.take() {
            Some((held, client)) if client == request.rid.client_facing() => held,
            _ => frontend.name(&request.rid)?,
        };
        name = Some((held.clone(), request.rid.client_facing().to_owned()));
        let frames = Frames::new(
            &request,
            is_list.then_some(index).filter(|_| stream),
            cumulative,
        );
        // Those before it are aborted where one is refused: they are dropped.
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

/// A step of a generation, as JSON.
struct Stepped {
    json: String,
    is_last: bool,
}

impl Generation {
    /// The next frame.
    ///
    /// Where frames show the whole, steps that have piled up make one.
    async fn step(&mut self) -> Result<Stepped, RequestError> {
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
        Ok(Stepped {
            json: self.frames.frame(self.start.elapsed()),
            is_last,
        })
    }

    /// The last frame, which shows the whole.
    async fn last(&mut self) -> Result<String, RequestError> {
        loop {
            let event = self.answer.next().await;
            if self.take(event)? {
                return Ok(self.frames.frame(self.start.elapsed()));
            }
        }
    }

    /// Takes an event in; says whether it is the last.
    fn take(&mut self, event: Option<ResponseEvent>) -> Result<bool, RequestError> {
        match event {
            Some(ResponseEvent::Chunk(chunk)) => {
                let is_last = chunk.finish.is_some();
                self.frames.push(chunk);
                Ok(is_last)
            }
            Some(ResponseEvent::Failed(error)) => Err(error),
            Some(ResponseEvent::Control(_) | ResponseEvent::Text(_)) | None => {
                Err(RequestError::Internal("an answer of another kind".into()))
            }
        }
    }
}

/// The events of one answer, after its first step.
fn single(generation: Generation, first: Stepped) -> impl Stream<Item = Bytes> {
    stream::unfold(Some((generation, Some(first))), async |state| {
        let (mut generation, first) = state?;
        let stepped = match first {
            Some(first) => Ok(first),
            None => generation.step().await,
        };
        Some(match stepped {
            Ok(Stepped {
                json,
                is_last: false,
            }) => (events::event(&json), Some((generation, None))),
            Ok(Stepped { json, .. }) => {
                ([events::event(&json), events::DONE].concat().into(), None)
            }
            Err(error) => (events::event(&errors::body_of(&error)), None),
        })
    })
}

/// The events of several answers, as they come; an error ends its own answer only.
fn multiplexed(generations: Vec<Generation>) -> impl Stream<Item = Bytes> {
    let each = generations
        .into_iter()
        .enumerate()
        .map(|(index, generation)| {
            Box::pin(stream::unfold(Some((index, generation)), next_of_several))
        });
    stream::select_all(each).chain(stream::once(async { events::DONE }))
}

/// The next event of the answer at an index.
async fn next_of_several(
    state: Option<(usize, Generation)>,
) -> Option<(Bytes, Option<(usize, Generation)>)> {
    let (index, mut generation) = state?;
    Some(match generation.step().await {
        Ok(Stepped { json, is_last }) => (
            events::event(&json),
            (!is_last).then_some((index, generation)),
        ),
        Err(error) => (events::event(&errors::indexed(&error, index)), None),
    })
}

fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
