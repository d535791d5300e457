//! The threads that have the requests: each its own share of them, without a lock.
//!
//! Invariant: an entry leaves its shard with a last event in its sink, unless nobody reads
//! there any more or it was deregistered; and whenever it leaves before the scheduler is
//! done with it, the scheduler is told.

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

/// What happens to requests.
#[derive(Debug)]
pub enum Event {
    /// A request begins: its events go to `sink`.
    Register {
        /// Which.
        rid: Rid,
        /// Where its events go.
        sink: Sink,
        /// What it asks of its text; nothing for a control message, which has none.
        options: Option<Options>,
    },
    /// A request is given up by whoever reads it; nothing more is sent.
    Deregister(Rid),
    /// The scheduler has tokens for some requests of this shard.
    Steps(Vec<(String, Step)>),
    /// The scheduler has answered a control message.
    Control(Rid, Bytes),
    /// A request has failed. Where the scheduler may still work on it
    /// ([`RequestError::Codec`], [`RequestError::Internal`]), it is told.
    Fail(Rid, RequestError),
    /// Tokens become text, and this is the answer to the request.
    Detokenize {
        /// Which.
        rid: Rid,
        /// The tokens.
        ids: Vec<i32>,
    },
}

/// How shards run.
#[derive(Clone)]
pub struct Config {
    /// How many; at least one.
    pub shards: usize,
    /// Events that wait at one shard at most.
    pub capacity: usize,
    /// The tokenizer. Without it answers have tokens and no text.
    pub tokenizer: Option<Arc<dyn TextTokenizer>>,
    /// Takes requests that the scheduler shall stop. It must never be full.
    pub aborts: flume::Sender<Rid>,
    /// Counts events that panicked, each of which failed its request.
    pub panics: Arc<AtomicU64>,
    /// Closed when everything shall end now.
    pub shutdown: flume::Receiver<()>,
}

/// Threads `detokenizer-{i}`. They end when the shutdown is signalled or every inbox is
/// gone, and fail what they still have.
#[derive(Debug)]
pub struct Shards {
    inboxes: Inboxes,
    workers: Workers,
}

/// Where events go in, cheap to clone.
#[derive(Clone, Debug)]
pub struct Inboxes(Arc<[flume::Sender<Event>]>);

/// The shard has ended; the event comes back.
#[derive(Debug)]
pub struct Gone(pub Event);

impl Shards {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// When the system has no more threads.
    pub fn start(config: &Config, on_start: &OnStart) -> io::Result<Self> {
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

    /// Where events go in.
    #[must_use]
    pub fn inboxes(&self) -> Inboxes {
        self.inboxes.clone()
    }

    /// Waits for the threads until `deadline`; gives how many still run.
    #[must_use]
    pub fn join(self, deadline: Instant) -> usize {
        drop(self.inboxes);
        self.workers.join(deadline)
    }
}

impl Inboxes {
    /// Sends `event` about `rid` to the shard that has it; waits while its inbox is full.
    ///
    /// # Errors
    ///
    /// When the shard has ended.
    pub fn send(&self, rid: &Rid, event: Event) -> Result<(), Gone> {
        let inbox = &self.0[rid.shard(self.0.len())];
        inbox.send(event).map_err(|error| Gone(error.0))
    }

    /// Sends steps to the shards that have their requests; waits while inboxes are full.
    ///
    /// # Errors
    ///
    /// When a shard has ended. Others have got theirs.
    pub fn send_steps(&self, steps: Vec<(String, Step)>) -> Result<(), Gone> {
        let mut shares: Vec<Vec<(String, Step)>> = Vec::new();
        shares.resize_with(self.0.len(), Vec::new);
        for (name, step) in steps {
            shares[shard_of(&name, self.0.len())].push((name, step));
        }
        let mut sent = Ok(());
        for (inbox, share) in self.0.iter().zip(shares) {
            if !share.is_empty()
                && let Err(error) = inbox.send(Event::Steps(share))
            {
                sent = Err(Gone(error.0));
            }
        }
        sent
    }
}

struct Entry {
    sink: Sink,
    /// Nothing for a control message.
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
            // The first is looked at first: a busy shard ends too.
            let event = flume::Selector::new()
                .recv(shutdown, |_| None)
                .recv(events, Result::ok)
                .wait();
            let Some(event) = event else { break };
            self.handle(event);
        }
        // What came in before the end has an end too.
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
                for (name, step) in steps {
                    self.guarded(&name, |shard| shard.step(&name, step));
                }
            }
            Event::Control(rid, payload) => self.control(rid.as_str(), payload),
            Event::Fail(rid, error) => {
                let working = matches!(error, RequestError::Codec(_) | RequestError::Internal(_));
                self.end_early(rid.as_str(), ResponseEvent::Failed(error), working);
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
            let error = RequestError::Internal("its name was given to another request".into());
            let _ = before.sink.end(ResponseEvent::Failed(error));
        }
    }

    fn step(&mut self, name: &str, step: Step) {
        let Some(entry) = self.entries.get_mut(name) else {
            return; // It has ended, and the scheduler did not know yet.
        };
        let finished = step.finish.is_some();
        let Some(answer) = &mut entry.answer else {
            let error = RequestError::Codec("tokens for a control message".into());
            self.end(name, ResponseEvent::Failed(error));
            return;
        };
        let (event, abort) = match answer.step(step) {
            Ok(told) => (ResponseEvent::Chunk(told.chunk), told.abort),
            Err(error) => (ResponseEvent::Failed(error), !finished),
        };
        if event.is_last() {
            self.end_early(name, event, abort);
            return;
        }
        match entry.sink.send(event) {
            Ok(()) => (),
            // Whoever read it aborts by himself, once.
            Err(SinkError::Closed) => drop(self.entries.remove(name)),
            Err(SinkError::Full) => {
                let error = RequestError::QueueFull(TOO_SLOW.into());
                self.end_early(name, ResponseEvent::Failed(error), true);
            }
        }
    }

    fn control(&mut self, name: &str, payload: Bytes) {
        let entry = self.entries.get(name);
        if entry.is_some_and(|entry| entry.answer.is_some()) {
            let error = RequestError::Codec("a control result for a generation".into());
            self.end_early(name, ResponseEvent::Failed(error), true);
        } else {
            self.end(name, ResponseEvent::Control(payload));
        }
    }

    fn detokenize(&mut self, rid: &Rid, ids: &[i32]) {
        let entry = self.entries.get_mut(rid);
        let Some(answer) = entry.and_then(|entry| entry.answer.as_mut()) else {
            return;
        };
        let event = match answer.whole(ids) {
            Ok(text) => ResponseEvent::Text(text),
            Err(error) => ResponseEvent::Failed(error),
        };
        self.end(rid.as_str(), event);
    }

    /// Sends the last event of a request. False where there is no such request, or its
    /// reader is gone: he aborts by himself.
    fn end(&mut self, name: &str, event: ResponseEvent) -> bool {
        let entry = self.entries.remove(name);
        entry.is_some_and(|entry| entry.sink.end(event).is_ok())
    }

    /// As [`Self::end`]; where the scheduler still works on the request, it is told.
    fn end_early(&mut self, name: &str, event: ResponseEvent, working: bool) {
        if self.end(name, event) && working {
            self.abort(Rid::whole(name.to_owned()));
        }
    }

    fn abort(&self, rid: Rid) {
        // The lane is closed at the end only, when the scheduler is gone too.
        let _ = self.aborts.send(rid);
    }

    /// Does `work` for the request `name`; a panic fails this request and no other.
    fn guarded(&mut self, name: &str, work: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| work(self))).is_ok() {
            return;
        }
        self.panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(rid = name, "the detokenizer panicked on a request");
        let error = RequestError::Detokenize("it panicked on these tokens".into());
        self.end_early(name, ResponseEvent::Failed(error), true);
    }
}

const TOO_SLOW: &str = "too much of this answer waits unread: read faster, or ask for fewer events (`stream_interval`)";
