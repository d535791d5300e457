//! The thread that leads requests to the scheduler: one after the other it checks them,
//! has their text tokenized, measures them and puts them into the ring.
//!
//! Nothing here waits for the scheduler or a tokenizer. A ring without room is an error for the request
//! and a later attempt for an abort.
//!
//! Invariant: what was admitted ends: in the ring, in a shard that answers it, or as an
//! error at its sink. An abort reaches the scheduler however full the ring is.

mod rules;
mod state;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tracing::debug;

use crate::{
    channel::{Refused, ToScheduler, ToSchedulerRing},
    config::ServerArgs,
    detokenizer::{Event as ShardEvent, Inboxes, Options},
    error::RequestError,
    ids::Rid,
    live::Sink,
    message::{GenerateRequest, Prompt, ResponseEvent},
    tokenizer::{AutoSpecials, Job, Tokenized},
    wire,
};
use state::{Event, State};

/// How soon an abort is offered again that found the ring full.
const ABORT_RETRY: Duration = Duration::from_millis(2);

/// What comes from the routes.
#[derive(Debug)]
pub(crate) enum Submission {
    /// A generation.
    Generate(Box<GenerateRequest>, Sink),
    /// A message to the scheduler that it answers with one of its own.
    Control {
        rid: Rid,
        header: Vec<u8>,
        sink: Sink,
    },
    /// Tokens of which only the text is asked for.
    Detokenize {
        rid: Rid,
        ids: Vec<i32>,
        skip_special_tokens: bool,
        sink: Sink,
    },
}

/// A request whose text has become tokens, or has not.
pub(crate) type TokenizedRequest = (Rid, Result<Tokenized, RequestError>);

/// The sending ends of the channels into this stage.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) submissions: flume::Sender<Submission>,
    /// Requests whose client disconnected or reads too slowly. Unbounded, because aborts
    /// arrive when the other channels are full.
    pub(crate) aborts: flume::Sender<Rid>,
    /// Requests to end early whose clients still wait for the scheduler's last frame.
    /// Unbounded too.
    pub(crate) give_ups: flume::Sender<Rid>,
}

/// The receiving ends of the same channels.
pub(crate) struct Inlets {
    pub(crate) submissions: flume::Receiver<Submission>,
    aborts: flume::Receiver<Rid>,
    give_ups: flume::Receiver<Rid>,
}

/// The channels into this stage; `capacity` submissions may wait.
pub(crate) fn entrance(capacity: usize) -> (Entrance, Inlets) {
    let (submissions, submission_inlet) = flume::bounded(capacity);
    let (aborts, abort_inlet) = flume::unbounded();
    let (give_ups, give_up_inlet) = flume::unbounded();
    let entrance = Entrance {
        submissions,
        aborts,
        give_ups,
    };
    let inlets = Inlets {
        submissions: submission_inlet,
        aborts: abort_inlet,
        give_ups: give_up_inlet,
    };
    (entrance, inlets)
}

/// What the thread works with.
pub(crate) struct Config {
    pub(crate) args: Arc<ServerArgs>,
    pub(crate) ring: ToSchedulerRing,
    pub(crate) shards: Inboxes,
    /// The tokenizer's inbox, if the server has a tokenizer.
    pub(crate) tokenizer: Option<flume::Sender<Job>>,
    /// Counts requests that were refused because a queue was full.
    pub(crate) refused: Arc<AtomicU64>,
    /// Counts bugs that were caught.
    pub(crate) panics: Arc<AtomicU64>,
}

/// The thread's state.
pub(crate) struct Intake {
    config: Config,
    /// Where the tokenizer's answers come back. Unbounded: there is at most one for each
    /// entry of `tokenizing`.
    tokenized: (
        flume::Sender<TokenizedRequest>,
        flume::Receiver<TokenizedRequest>,
    ),
    /// What the tokenizer has.
    tokenizing: HashMap<Rid, Box<GenerateRequest>>,
    /// Not begun, because their clients had left before: each has an abort on its way.
    skipped: HashSet<Rid>,
    /// What found the ring full, each once.
    aborts: VecDeque<Rid>,
    waiting: HashSet<Rid>,
}

/// What woke the thread.
enum Wake {
    Submission(Submission),
    Tokenized(TokenizedRequest),
    Abort(Rid),
    GiveUp(Rid),
    Retry,
    Shutdown,
}

impl Intake {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            tokenized: flume::unbounded(),
            tokenizing: HashMap::new(),
            skipped: HashSet::new(),
            aborts: VecDeque::new(),
            waiting: HashSet::new(),
        }
    }

    /// Works until the server goes down; then what is still here fails, and aborts that
    /// wait are offered once more.
    pub(crate) fn run(mut self, inlets: &Inlets, stopped: &flume::Receiver<()>) {
        loop {
            let wake = self.next(inlets, stopped);
            let rid = match &wake {
                Wake::Shutdown => break,
                Wake::Retry => None,
                Wake::Submission(submission) => Some(submission.rid().clone()),
                Wake::Tokenized((rid, _)) | Wake::Abort(rid) | Wake::GiveUp(rid) => {
                    Some(rid.clone())
                }
            };
            let handled = catch_unwind(AssertUnwindSafe(|| self.handle(wake, inlets)));
            if handled.is_err() {
                self.panicked(rid);
            }
        }
        for submission in inlets.submissions.drain() {
            submission.refuse(&RequestError::shutting_down());
        }
        for (rid, _) in std::mem::take(&mut self.tokenizing) {
            self.fail(&rid, State::Tokenizing, RequestError::shutting_down());
        }
        for rid in inlets.aborts.drain() {
            self.abort(rid);
        }
        self.retry_aborts();
    }

    fn handle(&mut self, wake: Wake, inlets: &Inlets) {
        match wake {
            Wake::Submission(submission) => self.receive(submission),
            Wake::Tokenized((rid, tokens)) => self.tokenized(&rid, tokens),
            Wake::Abort(rid) => {
                self.receive_all(inlets);
                self.abort(rid);
            }
            Wake::GiveUp(rid) => {
                self.receive_all(inlets);
                self.give_up(rid);
            }
            Wake::Retry => self.retry_aborts(),
            Wake::Shutdown => (),
        }
    }

    /// A bug, met on one request: that one fails, and others go on.
    fn panicked(&self, rid: Option<Rid>) {
        self.config.panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(?rid, "the way to the scheduler panicked on a request");
        if let Some(rid) = rid {
            let error = RequestError::Internal("the request could not be handled".into());
            self.send(&rid.clone(), ShardEvent::Fail(rid, error));
        }
    }

    fn next(&self, inlets: &Inlets, stopped: &flume::Receiver<()>) -> Wake {
        let selector = flume::Selector::new()
            .recv(stopped, |_| Wake::Shutdown)
            .recv(&inlets.aborts, |rid| {
                rid.map_or(Wake::Shutdown, Wake::Abort)
            })
            .recv(&inlets.give_ups, |rid| {
                rid.map_or(Wake::Shutdown, Wake::GiveUp)
            })
            .recv(&self.tokenized.1, |tokenized| {
                tokenized.map_or(Wake::Shutdown, Wake::Tokenized)
            })
            .recv(&inlets.submissions, |submission| {
                submission.map_or(Wake::Shutdown, Wake::Submission)
            });
        if self.aborts.is_empty() {
            return selector.wait();
        }
        selector.wait_timeout(ABORT_RETRY).unwrap_or(Wake::Retry)
    }

    /// What came before an abort, which must not overtake its request.
    fn receive_all(&mut self, inlets: &Inlets) {
        for submission in inlets.submissions.drain() {
            self.receive(submission);
        }
    }

    fn receive(&mut self, submission: Submission) {
        match submission {
            Submission::Generate(request, sink) => self.receive_generate(request, sink),
            Submission::Control { rid, header, sink } => {
                self.register(&rid, sink, None);
                self.push(&rid, State::PreSendValidating, ToScheduler::control(header));
            }
            Submission::Detokenize {
                rid,
                ids,
                skip_special_tokens,
                sink,
            } => {
                let mut options = Options::default();
                options.decode.skip_special_tokens = skip_special_tokens;
                self.register(&rid, sink, Some(options));
                self.send(&rid.clone(), ShardEvent::Detokenize { rid, ids });
            }
        }
    }

    fn give_up(&mut self, rid: Rid) {
        if self.tokenizing.remove(&rid).is_some() {
            let error = RequestError::Aborted {
                status: 499,
                message: "aborted before the scheduler had it".into(),
                err_type: None,
            };
            self.fail(&rid, State::Tokenizing, error);
            return;
        }
        // The scheduler answers: its last frame ends the request.
        self.tell(rid);
    }

    fn receive_generate(&mut self, mut request: Box<GenerateRequest>, sink: Sink) {
        if sink.is_closed() {
            self.skipped.insert(request.rid);
            return;
        }
        let state = step(State::Received, Event::Validate);
        if let Err(error) = rules::received(&request, &self.config.args) {
            // Not registered yet, so there is nothing to take back.
            let _ = sink.end(ResponseEvent::Failed(error));
            return;
        }
        self.register(&request.rid, sink, Some(Options::of(&request)));
        let state = step(state, Event::Normalize);
        match std::mem::replace(&mut request.prompt, Prompt::Ids(Vec::new())) {
            Prompt::Ids(ids) => self.measure(request, state, ids, None),
            Prompt::Text(text) => self.tokenize(request, state, text),
        }
    }

    fn tokenize(&mut self, mut request: Box<GenerateRequest>, state: State, text: String) {
        let state = step(state, Event::Tokenize);
        let rid = request.rid.clone();
        let (lane, name) = (self.tokenized.0.clone(), rid.clone());
        let job = Job {
            text: text.clone(),
            special: AutoSpecials::Added,
            stop_strs: request.sampling.stop_strs.clone(),
            answer: Box::new(move |tokens| drop(lane.send((name, tokens)))),
        };
        request.prompt = Prompt::Text(text);
        // Without waiting: long texts may be before it, and aborts must not wait for them.
        match self
            .config
            .tokenizer
            .as_ref()
            .map(|jobs| jobs.try_send(job))
        {
            Some(Ok(())) => {
                self.tokenizing.insert(rid, request);
            }
            Some(Err(flume::TrySendError::Full(_))) => {
                self.config.refused.fetch_add(1, Ordering::Relaxed);
                let message = "too many texts wait for the tokenizer: try again later";
                self.fail(&rid, state, RequestError::QueueFull(message.into()));
            }
            Some(Err(flume::TrySendError::Disconnected(_))) => {
                self.fail(&rid, state, RequestError::shutting_down());
            }
            None => {
                let error = RequestError::Internal("there is no tokenizer".into());
                self.fail(&rid, state, error);
            }
        }
    }

    fn tokenized(&mut self, rid: &Rid, tokens: Result<Tokenized, RequestError>) {
        let Some(mut request) = self.tokenizing.remove(rid) else {
            // Aborted in the meantime.
            return;
        };
        let text = match std::mem::replace(&mut request.prompt, Prompt::Ids(Vec::new())) {
            Prompt::Text(text) => Some(text),
            Prompt::Ids(_) => None,
        };
        match tokens {
            Ok(tokens) => {
                request.sampling.stop_str_max_len = tokens.stop_str_max_len;
                self.measure(request, State::Tokenizing, tokens.ids, text.as_deref());
            }
            Err(error) => self.fail(rid, State::Tokenizing, error),
        }
    }

    fn measure(
        &mut self,
        mut request: Box<GenerateRequest>,
        state: State,
        mut ids: Vec<i32>,
        text: Option<&str>,
    ) {
        let state = step(state, Event::Measure);
        let rid = request.rid.clone();
        let fits = match ids.as_slice() {
            [] => Err(RequestError::invalid("the prompt has no tokens")),
            _ => rules::fit(&mut request, &mut ids, &self.config.args),
        };
        match fits {
            Ok(()) => {
                let header = wire::generate(&request, text);
                self.push(&rid, state, ToScheduler::with_ids(header, &ids));
            }
            Err(error) => self.fail(&rid, state, error),
        }
    }

    fn push(&mut self, rid: &Rid, state: State, message: ToScheduler) {
        match self.config.ring.push(message) {
            Ok(()) => {
                step(state, Event::Queue);
            }
            Err(Refused::Full(_)) => {
                self.config.refused.fetch_add(1, Ordering::Relaxed);
                let message = "the scheduler's queue is full: try again later";
                self.fail(rid, state, RequestError::QueueFull(message.into()));
            }
            Err(Refused::Closed(_)) => self.fail(rid, state, RequestError::shutting_down()),
        }
    }

    fn fail(&mut self, rid: &Rid, state: State, error: RequestError) {
        step(state, Event::Fail);
        self.send(rid, ShardEvent::Fail(rid.clone(), error));
    }

    /// The client of `rid` has left, or is too slow.
    fn abort(&mut self, rid: Rid) {
        if self.skipped.remove(&rid) {
            return;
        }
        self.send(&rid, ShardEvent::Deregister(rid.clone()));
        if self.tokenizing.remove(&rid).is_some() {
            // The scheduler has never heard of it.
            step(State::Tokenizing, Event::Abort);
            return;
        }
        self.tell(rid);
    }

    /// Has the scheduler give `rid` up.
    fn tell(&mut self, rid: Rid) {
        // Anybody may ask for it over and over while the scheduler looks away.
        if self.waiting.insert(rid.clone()) {
            self.aborts.push_back(rid);
        }
        self.retry_aborts();
    }

    /// Puts aborts into the ring as long as it takes them.
    fn retry_aborts(&mut self) {
        while let Some(rid) = self.aborts.front() {
            match self
                .config
                .ring
                .push(ToScheduler::control(wire::abort(rid)))
            {
                Err(Refused::Full(_)) => return,
                Ok(()) => debug!(%rid, "aborted"),
                // Nobody is there who works on it.
                Err(Refused::Closed(_)) => (),
            }
            self.waiting.remove(rid);
            self.aborts.pop_front();
        }
    }

    fn register(&self, rid: &Rid, sink: Sink, options: Option<Options>) {
        let rid = rid.clone();
        self.send(&rid.clone(), ShardEvent::Register { rid, sink, options });
    }

    /// A shard that is gone has failed all that it had.
    fn send(&self, rid: &Rid, event: ShardEvent) {
        let _ = self.config.shards.send(rid, event);
    }
}

impl Submission {
    fn rid(&self) -> &Rid {
        match self {
            Self::Generate(request, _) => &request.rid,
            Self::Control { rid, .. } | Self::Detokenize { rid, .. } => rid,
        }
    }

    /// Tells whoever waits that there will be no answer.
    pub(crate) fn refuse(self, error: &RequestError) {
        let (Self::Generate(_, sink) | Self::Control { sink, .. } | Self::Detokenize { sink, .. }) =
            self;
        let _ = sink.end(ResponseEvent::Failed(error.clone()));
    }
}

/// Where `event` leads.
fn step(state: State, event: Event) -> State {
    let next = state.after(event);
    debug_assert!(next.is_some(), "{event:?} cannot happen in {state:?}");
    next.unwrap_or(State::Failed)
}
