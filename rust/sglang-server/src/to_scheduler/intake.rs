//! The thread of this stage: the events that wake it, and how it handles them.
//!
//! Invariant: a submission is handled before any abort that was sent after it, so an abort
//! never overtakes its request.

use std::{
    collections::{HashMap, HashSet},
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    Inlets, Submission,
    aborts::AbortQueue,
    progress::{Prompted, Unmeasured, Untokenized, Validated},
};
use crate::{
    channel::{Refused, ToScheduler, ToSchedulerRing},
    config::ServerArgs,
    detokenizer::{Event as ShardEvent, Inboxes, Options},
    error::RequestError,
    ids::Rid,
    live::Sink,
    message::{GenerateRequest, ResponseEvent},
    tokenizer::{Job, Tokenized},
};

/// How soon an abort is retried after the ring was full.
const ABORT_RETRY: Duration = Duration::from_millis(2);

/// The tokenizer's answer for a request.
type TokenizedRequest = (Rid, Result<Tokenized, RequestError>);

/// The settings, channels and counters that the thread uses.
pub(crate) struct Resources {
    pub(crate) args: Arc<ServerArgs>,
    pub(crate) ring: ToSchedulerRing,
    pub(crate) shards: Inboxes,
    /// The tokenizer's inbox, if the server has a tokenizer.
    pub(crate) tokenizer: Option<flume::Sender<Job>>,
    /// Counts requests that were refused because a queue was full.
    pub(crate) refused: Arc<AtomicU64>,
    /// Counts panics that were caught.
    pub(crate) panics: Arc<AtomicU64>,
}

/// The thread's state.
pub(crate) struct Intake {
    resources: Resources,
    /// The answers of the tokenizer. The channel is unbounded, so that the tokenizer's threads
    /// never wait. Each job has at most one answer.
    tokenized: flume::Receiver<TokenizedRequest>,
    /// Cloned for each job.
    tokenized_sender: flume::Sender<TokenizedRequest>,
    /// Requests that wait for the tokenizer.
    tokenizing: HashMap<Rid, Untokenized>,
    /// Requests that were not started because their client had disconnected. Each stays here
    /// until its abort arrives.
    skipped: HashSet<Rid>,
    aborts: AbortQueue,
}

/// An event that wakes the thread.
enum Wake {
    Submission(Submission),
    Tokenized(TokenizedRequest),
    Abort(Rid),
    Cancel(Rid),
    Retry,
    Shutdown,
}

impl Wake {
    /// The request that the event concerns.
    fn rid(&self) -> Option<Rid> {
        match self {
            Self::Submission(submission) => Some(submission.rid().clone()),
            Self::Tokenized((rid, _)) | Self::Abort(rid) | Self::Cancel(rid) => Some(rid.clone()),
            Self::Retry | Self::Shutdown => None,
        }
    }
}

impl Intake {
    pub(crate) fn new(resources: Resources) -> Self {
        let (tokenized_sender, tokenized) = flume::unbounded();
        Self {
            resources,
            tokenized,
            tokenized_sender,
            tokenizing: HashMap::new(),
            skipped: HashSet::new(),
            aborts: AbortQueue::default(),
        }
    }

    /// Works until `stopped` is disconnected, then fails the requests that are still
    /// queued or with the tokenizer, and tries once more to send the aborts.
    pub(crate) fn run(mut self, inlets: &Inlets, stopped: &flume::Receiver<()>) {
        loop {
            let wake = self.next(inlets, stopped);
            if matches!(wake, Wake::Shutdown) {
                break;
            }
            let rid = wake.rid();
            let handled = catch_unwind(AssertUnwindSafe(|| self.handle(wake, inlets)));
            if handled.is_err() {
                self.panicked(rid);
            }
        }
        for submission in inlets.submissions.drain() {
            submission.refuse(&RequestError::shutting_down());
        }
        for rid in mem::take(&mut self.tokenizing).into_keys() {
            self.fail(&rid, RequestError::shutting_down());
        }
        for rid in inlets.aborts.drain() {
            self.abort(rid);
        }
        self.aborts.flush(&self.resources.ring);
    }

    fn next(&self, inlets: &Inlets, stopped: &flume::Receiver<()>) -> Wake {
        let selector = flume::Selector::new()
            .recv(stopped, |_| Wake::Shutdown)
            .recv(&inlets.aborts, |rid| {
                rid.map_or(Wake::Shutdown, Wake::Abort)
            })
            .recv(&inlets.cancels, |rid| {
                rid.map_or(Wake::Shutdown, Wake::Cancel)
            })
            .recv(&self.tokenized, |tokenized| {
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

    fn handle(&mut self, wake: Wake, inlets: &Inlets) {
        match wake {
            Wake::Submission(submission) => self.receive(submission),
            Wake::Tokenized((rid, tokens)) => self.receive_tokens(&rid, tokens),
            Wake::Abort(rid) => {
                self.receive_all(inlets);
                self.abort(rid);
            }
            Wake::Cancel(rid) => {
                self.receive_all(inlets);
                self.cancel(rid);
            }
            Wake::Retry => self.aborts.flush(&self.resources.ring),
            Wake::Shutdown => (),
        }
    }

    /// Handles a panic that was caught: the request fails, and the thread continues.
    fn panicked(&self, rid: Option<Rid>) {
        self.resources.panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(?rid, "the to-scheduler thread panicked on a request");
        if let Some(rid) = rid {
            let error = RequestError::Internal("the request could not be handled".into());
            self.fail(&rid, error);
        }
    }

    /// Handles the submissions that arrived before an abort.
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
                self.push(&rid, ToScheduler::control(header));
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

    fn receive_generate(&mut self, request: Box<GenerateRequest>, sink: Sink) {
        let rid = request.rid.clone();
        if sink.is_closed() {
            self.skipped.insert(rid);
            return;
        }
        let validated = match Validated::check(request, &self.resources.args) {
            Ok(validated) => validated,
            Err(error) => {
                // The request is not registered yet, so no shard needs to know.
                let _ = sink.end(ResponseEvent::Failed(error));
                return;
            }
        };
        self.register(&rid, sink, Some(Options::of(validated.request())));
        match validated.into_prompted() {
            Prompted::Ids(request) => self.measure(&rid, request),
            Prompted::Text(request) => self.tokenize(rid, request),
        }
    }

    fn tokenize(&mut self, rid: Rid, request: Untokenized) {
        let Some(tokenizer) = &self.resources.tokenizer else {
            let error = RequestError::Internal("there is no tokenizer".into());
            return self.fail(&rid, error);
        };
        let answers = self.tokenized_sender.clone();
        let name = rid.clone();
        let answer = move |tokens| drop(answers.send((name, tokens)));
        // `try_send` does not wait for room: tokenizing a long text could make it wait long,
        // and aborts would be delayed.
        match tokenizer.try_send(request.job(Box::new(answer))) {
            Ok(()) => {
                self.tokenizing.insert(rid, request);
            }
            Err(flume::TrySendError::Full(_)) => {
                self.resources.refused.fetch_add(1, Ordering::Relaxed);
                let message = "too many texts wait for the tokenizer: try again later";
                self.fail(&rid, RequestError::QueueFull(message.into()));
            }
            Err(flume::TrySendError::Disconnected(_)) => {
                self.fail(&rid, RequestError::shutting_down());
            }
        }
    }

    fn receive_tokens(&mut self, rid: &Rid, tokens: Result<Tokenized, RequestError>) {
        let Some(request) = self.tokenizing.remove(rid) else {
            return; // The request was aborted while the tokenizer worked on it.
        };
        match tokens {
            Ok(tokens) => self.measure(rid, request.with_tokens(tokens)),
            Err(error) => self.fail(rid, error),
        }
    }

    fn measure(&self, rid: &Rid, request: Unmeasured) {
        match request.fit(&self.resources.args) {
            Ok(request) => self.push(rid, request.into_message()),
            Err(error) => self.fail(rid, error),
        }
    }

    fn push(&self, rid: &Rid, message: ToScheduler) {
        match self.resources.ring.push(message) {
            Ok(()) => (),
            Err(Refused::Full(_)) => {
                self.resources.refused.fetch_add(1, Ordering::Relaxed);
                let message = "the scheduler's queue is full: try again later";
                self.fail(rid, RequestError::QueueFull(message.into()));
            }
            Err(Refused::Closed(_)) => self.fail(rid, RequestError::shutting_down()),
        }
    }

    /// Ends a request whose client disconnected or reads too slowly.
    fn abort(&mut self, rid: Rid) {
        if self.skipped.remove(&rid) {
            return;
        }
        self.send(&rid, ShardEvent::Deregister(rid.clone()));
        // A request that is still with the tokenizer is unknown to the scheduler.
        if self.tokenizing.remove(&rid).is_none() {
            self.abort_in_scheduler(rid);
        }
    }

    /// Aborts a request because of `/abort_request`. The client that waits for its answer learns how
    /// it ended.
    fn cancel(&mut self, rid: Rid) {
        if self.tokenizing.remove(&rid).is_some() {
            let error = RequestError::Aborted {
                status: 499,
                message: "aborted before the scheduler received it".into(),
                err_type: None,
            };
            return self.fail(&rid, error);
        }
        // The scheduler's last frame ends the request.
        self.abort_in_scheduler(rid);
    }

    fn abort_in_scheduler(&mut self, rid: Rid) {
        self.aborts.add(rid);
        self.aborts.flush(&self.resources.ring);
    }

    fn register(&self, rid: &Rid, sink: Sink, options: Option<Options>) {
        let rid = rid.clone();
        self.send(&rid.clone(), ShardEvent::Register { rid, sink, options });
    }

    fn fail(&self, rid: &Rid, error: RequestError) {
        self.send(rid, ShardEvent::Fail(rid.clone(), error));
    }

    fn send(&self, rid: &Rid, event: ShardEvent) {
        // A shard that has ended has already failed all its requests.
        let _ = self.resources.shards.send(rid, event);
    }
}
