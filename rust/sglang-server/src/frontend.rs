//! The entrance for HTTP routes: submits requests, and keeps the flags and counters that
//! the health and metrics routes read.
//!
//! Invariant: dropping an answer before its last event aborts the request.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use crate::{
    config::{FrontendConfig, ServerArgs},
    error::RequestError,
    ids::Rid,
    live::{LiveName, LiveNames, Sink},
    message::{GenerateRequest, ResponseEvent},
    to_scheduler::{Entrance, Submission},
    tokenizer::{AutoSpecials, Job},
};

/// The state that all routes of a running server share.
#[derive(Debug)]
pub(crate) struct Frontend {
    pub(crate) args: Arc<ServerArgs>,
    pub(crate) config: FrontendConfig,
    pub(crate) names: LiveNames,
    pub(crate) status: Arc<Status>,
    entrance: Entrance,
    /// The tokenizer's inbox. Its threads end when every sender is dropped, so a shutdown
    /// drops this one.
    jobs: Mutex<Option<flume::Sender<Job>>>,
}

/// Flags and counters of a running server.
#[derive(Debug)]
pub(crate) struct Status {
    start: Instant,
    /// Well-formed frames from the scheduler.
    pub(crate) frames: Arc<AtomicU64>,
    /// Milliseconds from the start to the time when the scheduler last read its inbox; 0
    /// before the first time.
    heartbeat: AtomicU64,
    /// Cancelled when the server begins to shut down.
    pub(crate) draining: CancellationToken,
    /// Requests that were admitted.
    pub(crate) admitted: AtomicU64,
    /// Requests that were refused because a queue was full.
    pub(crate) refused: Arc<AtomicU64>,
    /// Generations whose client disconnected before the last event.
    pub(crate) aborted: AtomicU64,
    /// Panics that were caught. Each failed one request or lost one frame.
    pub(crate) panics: Arc<AtomicU64>,
    /// Holds one token for each [`Answer`].
    pub(crate) live: TaskTracker,
}

impl Status {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            frames: Arc::default(),
            heartbeat: AtomicU64::new(0),
            draining: CancellationToken::new(),
            admitted: AtomicU64::new(0),
            refused: Arc::default(),
            aborted: AtomicU64::new(0),
            panics: Arc::default(),
            live: TaskTracker::new(),
        }
    }

    /// Records that the scheduler reads its inbox.
    pub(crate) fn beat(&self) {
        let now = self.start.elapsed().as_millis() as u64;
        self.heartbeat.store(now.max(1), Ordering::Relaxed);
    }

    /// The time since the last [`Self::beat`]; `None` before the first one.
    pub(crate) fn since_beat(&self) -> Option<Duration> {
        let beat = Duration::from_millis(self.heartbeat.load(Ordering::Relaxed));
        (!beat.is_zero()).then(|| self.start.elapsed().saturating_sub(beat))
    }
}

impl Frontend {
    pub(crate) fn new(
        args: Arc<ServerArgs>,
        config: FrontendConfig,
        status: Arc<Status>,
        entrance: Entrance,
        jobs: Option<flume::Sender<Job>>,
    ) -> Self {
        Self {
            args,
            config,
            names: LiveNames::default(),
            status,
            entrance,
            jobs: Mutex::new(jobs),
        }
    }

    /// Reserves the client's name for a request until its answer has ended.
    pub(crate) fn name(&self, rid: &Rid) -> Result<LiveName, RequestError> {
        let name = rid.client_facing();
        self.names.take(name).ok_or_else(|| RequestError::Invalid {
            message: format!(
                "rid `{name}` is in use: another request has it and is not answered yet"
            ),
            param: Some("rid".into()),
            code: "duplicate_rid",
        })
    }

    /// Submits a generation.
    pub(crate) fn generate(
        &self,
        request: Box<GenerateRequest>,
        name: Option<LiveName>,
    ) -> Result<Answer, RequestError> {
        let rid = request.rid.clone();
        if let Some(name) = &name {
            name.add(rid.clone());
        }
        self.submit(rid, name, |sink| Submission::Generate(request, sink))
    }

    /// Submits a control message. `header` encodes it for the request id that it is given.
    pub(crate) fn control(
        &self,
        header: impl FnOnce(&Rid) -> Vec<u8>,
    ) -> Result<Answer, RequestError> {
        let rid = Rid::mint();
        self.submit(rid.clone(), None, |sink| Submission::Control {
            header: header(&rid),
            rid: rid.clone(),
            sink,
        })
    }

    /// Submits tokens to decode into text, without a generation.
    pub(crate) fn detokenize(
        &self,
        ids: Vec<i32>,
        skip_special_tokens: bool,
    ) -> Result<Answer, RequestError> {
        let rid = Rid::mint();
        self.submit(rid.clone(), None, |sink| Submission::Detokenize {
            rid: rid.clone(),
            ids,
            skip_special_tokens,
            sink,
        })
    }

    /// Tokenizes `text`.
    pub(crate) async fn tokenize(
        &self,
        text: String,
        special: AutoSpecials,
    ) -> Result<Vec<i32>, RequestError> {
        let Some(jobs) = self.jobs().clone() else {
            return Err(RequestError::invalid("this server has no tokenizer"));
        };
        let (answer, tokens) = oneshot::channel();
        let job = Job {
            text,
            special,
            stop_strs: Vec::new(),
            answer: Box::new(|tokenized| drop(answer.send(tokenized))),
        };
        jobs.try_send(job)
            .map_err(|error| self.send_error(&error))?;
        let lost = |_| RequestError::Internal("the answer of the tokenizer was lost".into());
        Ok(tokens.await.map_err(lost)??.ids)
    }

    /// Drops this sender of the tokenizer's inbox, so that its threads can end.
    pub(crate) fn release_tokenizer(&self) {
        self.jobs().take();
    }

    fn jobs(&self) -> MutexGuard<'_, Option<flume::Sender<Job>>> {
        // An option is valid at any time, so a poisoned lock does no harm.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Aborts the requests with the client's `name`, or all requests. Each ends with the
    /// scheduler's last frame, or with an error if the scheduler has not seen it. Returns the
    /// number of aborted requests.
    pub(crate) fn abort(&self, name: Option<&str>) -> usize {
        let rids = self.names.rids(name);
        let count = rids.len();
        for rid in rids {
            // This fails only after the shutdown, when the request has ended too.
            let _ = self.entrance.cancels.send(rid);
        }
        count
    }

    /// The number of requests that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.status.live.len()
    }

    /// Refuses new requests from now on. HTTP stops accepting connections.
    pub(crate) fn start_draining(&self) {
        self.status.draining.cancel();
        self.status.live.close();
    }

    fn submit(
        &self,
        rid: Rid,
        name: Option<LiveName>,
        submission: impl FnOnce(Sink) -> Submission,
    ) -> Result<Answer, RequestError> {
        let has_name = name.is_some();
        let (sink, events) = Sink::new(self.config.stage_cap, name);
        self.send(submission(sink))?;
        self.status.admitted.fetch_add(1, Ordering::Relaxed);
        Ok(Answer {
            rid: Some(rid),
            has_name,
            events,
            aborts: self.entrance.aborts.clone(),
            status: Arc::clone(&self.status),
            _live: self.status.live.token(),
        })
    }

    fn send(&self, submission: Submission) -> Result<(), RequestError> {
        if self.status.draining.is_cancelled() {
            return Err(RequestError::shutting_down());
        }
        let sent = self.entrance.submissions.try_send(submission);
        sent.map_err(|error| self.send_error(&error))
    }

    /// The error for the client when a channel is full or closed. If the channel is full, counts the
    /// request as refused.
    fn send_error<T>(&self, error: &flume::TrySendError<T>) -> RequestError {
        match error {
            flume::TrySendError::Full(_) => {
                self.status.refused.fetch_add(1, Ordering::Relaxed);
                RequestError::QueueFull("too many requests wait: try again later".into())
            }
            flume::TrySendError::Disconnected(_) => RequestError::shutting_down(),
        }
    }
}

/// The receiving end of the answer to one request. Dropping it before the last event aborts the
/// request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// `None` after the last event.
    rid: Option<Rid>,
    /// True for a client's generation; false for control messages, health probes and
    /// `/detokenize`.
    has_name: bool,
    events: mpsc::Receiver<ResponseEvent>,
    aborts: flume::Sender<Rid>,
    status: Arc<Status>,
    /// Counts this answer as live. Fields are dropped after `drop` has sent the abort. So when
    /// a shutdown sees no live answer, every abort has been sent.
    _live: TaskTrackerToken,
}

impl Answer {
    /// Waits for the next event. Returns `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<ResponseEvent> {
        self.rid.as_ref()?;
        let event = self.events.recv().await;
        Some(self.seen(event))
    }

    /// The next event, if it has arrived.
    pub(crate) fn next_now(&mut self) -> Option<ResponseEvent> {
        self.rid.as_ref()?;
        match self.events.try_recv() {
            Ok(event) => Some(self.seen(Some(event))),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(self.seen(None)),
        }
    }

    /// Records the last event. If the channel closes before the last event, the request has
    /// failed.
    fn seen(&mut self, event: Option<ResponseEvent>) -> ResponseEvent {
        let event = event.unwrap_or_else(|| {
            ResponseEvent::Failed(RequestError::Internal("the answer was truncated".into()))
        });
        if event.is_last() {
            self.rid = None;
        }
        event
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Closed before the abort is sent: the intake skips a request whose sink is closed.
        self.events.close();
        // An unread last event still ends the request, so it needs no abort.
        while let Ok(event) = self.events.try_recv() {
            if event.is_last() {
                self.rid = None;
            }
        }
        if let Some(rid) = self.rid.take() {
            if self.has_name {
                self.status.aborted.fetch_add(1, Ordering::Relaxed);
            }
            // This fails only after the shutdown.
            let _ = self.aborts.send(rid);
        }
    }
}
