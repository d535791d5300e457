//! The detokenizer threads. Each owns one shard of the requests, so no lock is needed.
//!
//! Invariants: when the entry of a request is removed, its last event is sent to its sink, unless
//! the sink is closed or the request was deregistered. If the scheduler may still be working on the
//! request, an abort is sent to it.

use std::{
    collections::HashMap,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;

use super::answer::{Answer, Options};
use crate::{
    error::RequestError,
    ids::{Rid, shard_of},
    live::{Sink, SinkError},
    message::{ResponseEvent, Step},
    tokenizer::TextTokenizer,
    workers::{OnStart, Workers},
};

/// An event for a request.
#[derive(Debug)]
pub(crate) enum Event {
    /// A new request.
    Register {
        /// The request.
        rid: Rid,
        /// The receiver of its response events.
        sink: Sink,
        /// Options for its text; `None` for a control message, which has no text.
        options: Option<Options>,
    },
    /// The reader has given up the request. No more events are sent to it.
    Deregister(Rid),
    /// Steps from the scheduler, for requests of this shard.
    Steps(Vec<(String, Step)>),
    /// The scheduler's answer to a control message.
    Control(Rid, Bytes),
    /// A request has failed. After [`RequestError::Codec`] and [`RequestError::Internal`] the
    /// scheduler may still be working on the request, so it gets an abort.
    Fail(Rid, RequestError),
    /// Decode these tokens. The text is the whole answer to the request.
    Detokenize {
        /// The request.
        rid: Rid,
        /// The tokens.
        ids: Vec<i32>,
    },
}

/// The settings, channels and counters that the shards use.
#[derive(Clone)]
pub(crate) struct Config {
    /// Number of shards; at least one is started.
    pub shards: usize,
    /// Capacity of each shard's inbox, in events.
    pub capacity: usize,
    /// The tokenizer. Without one, answers have token ids but no text.
    pub tokenizer: Option<Arc<dyn TextTokenizer>>,
    /// Queue of aborts for the scheduler. It must be unbounded.
    pub aborts: flume::Sender<Rid>,
    /// Counts panics. Each panic fails one request.
    pub panics: Arc<AtomicU64>,
    /// Closed at shutdown.
    pub shutdown: flume::Receiver<()>,
}

/// The threads `detokenizer-{i}`. They end at shutdown or when all senders are dropped. Requests
/// that are still open then fail.
#[derive(Debug)]
pub(crate) struct Shards {
    inboxes: Inboxes,
    workers: Workers,
}

/// The senders to all shards. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Inboxes(Arc<[flume::Sender<Event>]>);

/// The shard has ended, and the event was dropped.
#[derive(Debug)]
pub(crate) struct Gone;

impl Shards {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub(crate) fn start(config: &Config, on_start: &OnStart) -> io::Result<Self> {
        let one = |_| {
            let (inbox, events) = flume::bounded(config.capacity);
            let shard = Shard {
                tokenizer: config.tokenizer.clone(),
                aborts: config.aborts.clone(),
                entries: HashMap::new(),
                panics: Arc::clone(&config.panics),
            };
            let shutdown = config.shutdown.clone();
            (inbox, move || shard.run(&events, &shutdown))
        };
        let (inboxes, bodies): (Vec<_>, Vec<_>) = (0..config.shards.max(1)).map(one).unzip();
        Ok(Self {
            workers: Workers::spawn("detokenizer", on_start, bodies)?,
            inboxes: Inboxes(inboxes.into()),
        })
    }

    /// The senders to the shards.
    #[must_use]
    pub(crate) fn inboxes(&self) -> Inboxes {
        self.inboxes.clone()
    }

    /// Waits until `deadline` for the threads to end. Returns how many still run.
    #[must_use]
    pub(crate) fn join(self, deadline: Instant) -> usize {
        drop(self.inboxes);
        self.workers.join(deadline)
    }
}

impl Inboxes {
    /// Sends `event` to the shard of `rid`; blocks while its inbox is full.
    ///
    /// # Errors
    ///
    /// If the shard has ended.
    pub(crate) fn send(&self, rid: &Rid, event: Event) -> Result<(), Gone> {
        let inbox = &self.0[rid.shard(self.0.len())];
        inbox.send(event).map_err(|_| Gone)
    }

    /// Sends each step to the shard of its request; blocks while an inbox is full.
    ///
    /// # Errors
    ///
    /// If a shard has ended. The steps for the other shards are sent anyway.
    pub(crate) fn send_steps(&self, steps: Vec<(String, Step)>) -> Result<(), Gone> {
        let mut shares: Vec<Vec<(String, Step)>> = Vec::new();
        shares.resize_with(self.0.len(), Vec::new);
        for (rid, step) in steps {
            shares[shard_of(&rid, self.0.len())].push((rid, step));
        }
        let mut sent = Ok(());
        for (inbox, share) in self.0.iter().zip(shares) {
            if !share.is_empty() && inbox.send(Event::Steps(share)).is_err() {
                sent = Err(Gone);
            }
        }
        sent
    }
}

struct Entry {
    sink: Sink,
    /// `None` for a control message.
    answer: Option<Answer>,
}

struct Shard {
    tokenizer: Option<Arc<dyn TextTokenizer>>,
    aborts: flume::Sender<Rid>,
    entries: HashMap<Rid, Entry>,
    panics: Arc<AtomicU64>,
}

impl Shard {
    fn run(mut self, events: &flume::Receiver<Event>, shutdown: &flume::Receiver<()>) {
        loop {
            // The selector polls in order, so `shutdown` comes first: a busy shard must end too.
            let event = flume::Selector::new()
                .recv(shutdown, |_| None)
                .recv(events, Result::ok)
                .wait();
            let Some(event) = event else { break };
            self.handle(event);
        }
        // Handle the events that were sent before the shutdown.
        for event in events.try_iter().take(events.len()) {
            self.handle(event);
        }
        for (_, entry) in self.entries.drain() {
            let gone = RequestError::shutting_down();
            let _ = entry.sink.end(ResponseEvent::Failed(gone));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Register { rid, sink, options } => self.register(rid, sink, options),
            Event::Deregister(rid) => drop(self.entries.remove(&rid)),
            Event::Steps(steps) => {
                for (rid, step) in steps {
                    self.guarded(&rid, |shard| shard.step(&rid, step));
                }
            }
            Event::Control(rid, payload) => self.control(rid.as_str(), payload),
            Event::Fail(rid, error) => {
                let active = matches!(error, RequestError::Codec(_) | RequestError::Internal(_));
                let event = ResponseEvent::Failed(error);
                if active {
                    self.end_and_abort(rid.as_str(), event);
                } else {
                    self.end(rid.as_str(), event);
                }
            }
            Event::Detokenize { rid, ids } => {
                self.guarded(rid.as_str(), |shard| shard.detokenize(&rid, &ids));
            }
        }
    }

    fn register(&mut self, rid: Rid, sink: Sink, options: Option<Options>) {
        let answer = options.map(|options| Answer::new(self.tokenizer.as_ref(), options));
        let before = self.entries.insert(rid, Entry { sink, answer });
        if let Some(before) = before {
            let error =
                RequestError::Internal("another request was registered with the same rid".into());
            let _ = before.sink.end(ResponseEvent::Failed(error));
        }
    }

    fn step(&mut self, rid: &str, step: Step) {
        let Some(entry) = self.entries.get_mut(rid) else {
            return; // The request has ended, but the scheduler did not know that yet.
        };
        let finished = step.finish.is_some();
        let Some(answer) = &mut entry.answer else {
            let error = RequestError::Codec("tokens for a control message".into());
            self.end(rid, ResponseEvent::Failed(error));
            return;
        };
        let (event, abort) = match answer.step(step) {
            Ok(result) => (ResponseEvent::Chunk(result.chunk), result.abort),
            Err(error) => (ResponseEvent::Failed(error), !finished),
        };
        if event.is_last() {
            if abort {
                self.end_and_abort(rid, event);
            } else {
                self.end(rid, event);
            }
            return;
        }
        match entry.sink.send(event) {
            Ok(()) => (),
            // The reader is gone. Dropping it has sent the abort.
            Err(SinkError::Closed) => drop(self.entries.remove(rid)),
            Err(SinkError::Full) => {
                let error = RequestError::QueueFull(TOO_SLOW.into());
                self.end_and_abort(rid, ResponseEvent::Failed(error));
            }
        }
    }

    fn control(&mut self, rid: &str, payload: Bytes) {
        let entry = self.entries.get(rid);
        if entry.is_some_and(|entry| entry.answer.is_some()) {
            let error = RequestError::Codec("a control result for a generation".into());
            self.end_and_abort(rid, ResponseEvent::Failed(error));
        } else {
            self.end(rid, ResponseEvent::Control(payload));
        }
    }

    fn detokenize(&mut self, rid: &Rid, ids: &[i32]) {
        let entry = self.entries.get_mut(rid);
        let Some(answer) = entry.and_then(|entry| entry.answer.as_mut()) else {
            return;
        };
        let event = match answer.decode_all(ids) {
            Ok(text) => ResponseEvent::Text(text),
            Err(error) => ResponseEvent::Failed(error),
        };
        self.end(rid.as_str(), event);
    }

    /// Sends the last event of a request. Returns false if there is no such request, or if its
    /// reader is gone (dropping the reader has sent the abort).
    fn end(&mut self, rid: &str, event: ResponseEvent) -> bool {
        let entry = self.entries.remove(rid);
        entry.is_some_and(|entry| entry.sink.end(event).is_ok())
    }

    /// As [`Self::end`], and sends an abort to the scheduler if the event was sent.
    fn end_and_abort(&mut self, rid: &str, event: ResponseEvent) {
        if self.end(rid, event) {
            self.abort(Rid::whole(rid.to_owned()));
        }
    }

    fn abort(&self, rid: Rid) {
        // The queue closes only at shutdown, when the scheduler is gone too.
        let _ = self.aborts.send(rid);
    }

    /// Runs `work` for the request `rid`. A panic fails only this request.
    fn guarded(&mut self, rid: &str, work: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| work(self))).is_ok() {
            return;
        }
        self.panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(rid, "the detokenizer panicked on a request");
        let error = RequestError::Detokenize("it panicked on these tokens".into());
        self.end_and_abort(rid, ResponseEvent::Failed(error));
    }
}

const TOO_SLOW: &str = "too much of this answer waits unread: read faster, or ask for fewer events (`stream_interval`)";
