//! Tests of the decoder alone (`text`), and of requests in running shards: the events at their
//! sinks, and the aborts for the scheduler.

mod answers;
mod shards;
mod text;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::sync::mpsc;

use super::{Config, Event, Options, Shards, Stops};
use crate::{
    error::RequestError,
    ids::Rid,
    live::Sink,
    message::{Chunk, FinishReason, ResponseEvent, Step},
    tokenizer::{
        ByteTokenizer, TextTokenizer,
        samples::{self, Panicking},
    },
};

/// Running shards.
struct Running {
    shards: Shards,
    aborts: flume::Receiver<Rid>,
    panics: Arc<AtomicU64>,
    shutdown: flume::Sender<()>,
}

/// The reader of one request.
struct Reader {
    rid: Rid,
    events: mpsc::Receiver<ResponseEvent>,
}

fn run(tokenizer: Option<Arc<dyn TextTokenizer>>, shards: usize) -> Running {
    let (abort, aborts) = flume::unbounded();
    let (hold, shutdown) = flume::bounded(0);
    let config = Config {
        shards,
        capacity: 64,
        tokenizer,
        aborts: abort,
        panics: Arc::default(),
        shutdown,
    };
    Running {
        shards: Shards::start(&config, &(Arc::new(|_| ()) as _)).unwrap(),
        aborts,
        panics: config.panics,
        shutdown: hold,
    }
}

fn byte_level() -> Running {
    run(Some(Arc::new(ByteTokenizer::default())), 2)
}

impl Running {
    fn register(&self, capacity: usize, options: impl Into<Option<Options>>) -> Reader {
        self.register_as(Rid::from_client("x"), capacity, options)
    }

    fn register_as(
        &self,
        rid: Rid,
        capacity: usize,
        options: impl Into<Option<Options>>,
    ) -> Reader {
        let (sink, events) = Sink::new(capacity, None);
        let event = Event::Register {
            rid: rid.clone(),
            sink,
            options: options.into(),
        };
        self.send(&rid, event);
        Reader { rid, events }
    }

    fn send(&self, rid: &Rid, event: Event) {
        self.shards.inboxes().send(rid, event).unwrap();
    }

    fn steps(&self, rid: &Rid, steps: impl IntoIterator<Item = Step>) {
        let steps = steps.into_iter().map(|step| (rid.to_string(), step));
        self.shards.inboxes().send_steps(steps.collect()).unwrap();
    }

    /// Ends the shards, and returns the aborts for the scheduler.
    fn end(self) -> Vec<Rid> {
        drop(self.shutdown);
        assert_eq!(
            0,
            self.shards.join(Instant::now() + Duration::from_secs(20))
        );
        self.aborts.into_iter().collect()
    }
}

impl Reader {
    fn next(&mut self) -> Option<ResponseEvent> {
        self.events.blocking_recv()
    }

    fn chunk(&mut self) -> Chunk {
        match self.next() {
            Some(ResponseEvent::Chunk(chunk)) => chunk,
            other => panic!("expected a chunk, got {other:?}"),
        }
    }

    fn error(&mut self) -> RequestError {
        match self.next() {
            Some(ResponseEvent::Failed(error)) => error,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    /// All chunks up to the last one. Checks that no event follows it.
    fn all_chunks(&mut self) -> Vec<Chunk> {
        let mut chunks = vec![self.chunk()];
        while chunks.last().unwrap().finish.is_none() {
            chunks.push(self.chunk());
        }
        assert_eq!(None, self.next(), "an event after the last one");
        chunks
    }
}

fn reason(value: &Value) -> Option<FinishReason> {
    value.as_object().map(|map| FinishReason(map.clone()))
}

fn step(ids: &[i32], finish: &Value) -> Step {
    Step {
        output_ids: ids.to_vec(),
        finish: reason(finish),
        prompt_tokens: 3,
        extras: None,
    }
}

fn with_stops(stops: &[&str]) -> Options {
    let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
    Options {
        stops: Stops::new(&stops),
        ..Options::default()
    }
}

/// Shards with a tokenizer that decodes all tokens at once, panics on token 9 and fails on 10.
fn faulty() -> Running {
    let (_, inner) = samples::all().pop().unwrap();
    let tokenizer = Panicking {
        inner,
        text: "unused",
        id: 9,
    };
    run(Some(Arc::new(tokenizer)), 1)
}
