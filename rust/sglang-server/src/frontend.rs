//! The way in: what a route needs to have a request answered, and to know how the server
//! is.
//!
//! Invariant: whoever gives an answer up before its end has aborted the request.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::sync::{mpsc, oneshot};

use crate::{
    config::{FrontendConfig, ServerArgs},
    error::RequestError,
    ids::Rid,
    live::{LiveName, LiveNames, Sink},
    message::{GenerateRequest, ResponseEvent},
    to_scheduler::Submission,
    tokenizer::{AutoSpecials, Job},
};

/// One running frontend.
#[derive(Debug)]
pub(crate) struct Frontend {
    pub(crate) args: Arc<ServerArgs>,
    pub(crate) config: FrontendConfig,
    pub(crate) names: LiveNames,
    pub(crate) signs: Arc<Signs>,
    submissions: flume::Sender<Submission>,
    aborts: flume::Sender<Rid>,
    given_up: flume::Sender<Rid>,
    /// The tokenizer's threads live as long as this.
    jobs: Mutex<Option<flume::Sender<Job>>>,
}

/// Signs of life, for whoever asks how the server is.
#[derive(Debug)]
pub(crate) struct Signs {
    start: Instant,
    /// Frames that came from the scheduler.
    pub(crate) frames: Arc<AtomicU64>,
    /// Milliseconds from the start to the scheduler's last look at its inbox; 0: none.
    heartbeat: AtomicU64,
    /// Whether the server is shutting down.
    pub(crate) draining: AtomicBool,
    /// Requests admitted, refused for want of room, and given up by their clients.
    pub(crate) admitted: AtomicU64,
    pub(crate) refused: Arc<AtomicU64>,
    pub(crate) aborted: AtomicU64,
    /// Faults of ours that ended one request each, and nothing else.
    pub(crate) panics: Arc<AtomicU64>,
    /// Answers that somebody still reads.
    live: AtomicUsize,
}

impl Signs {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            frames: Arc::default(),
            heartbeat: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            admitted: AtomicU64::new(0),
            refused: Arc::default(),
            aborted: AtomicU64::new(0),
            panics: Arc::default(),
            live: AtomicUsize::new(0),
        }
    }

    /// The scheduler has looked at its inbox.
    pub(crate) fn beat(&self) {
        let now = self.start.elapsed().as_millis() as u64;
        self.heartbeat.store(now.max(1), Ordering::Relaxed);
    }

    /// How long ago it did; nothing if it never has.
    pub(crate) fn since_beat(&self) -> Option<std::time::Duration> {
        let beat = self.heartbeat.load(Ordering::Relaxed);
        let beat = std::time::Duration::from_millis(beat);
        (!beat.is_zero()).then(|| self.start.elapsed().saturating_sub(beat))
    }
}

impl Frontend {
    pub(crate) fn new(
        args: Arc<ServerArgs>,
        config: FrontendConfig,
        signs: Arc<Signs>,
        submissions: flume::Sender<Submission>,
        aborts: flume::Sender<Rid>,
        given_up: flume::Sender<Rid>,
        jobs: Option<flume::Sender<Job>>,
    ) -> Self {
        Self {
            args,
            config,
            names: LiveNames::default(),
            signs,
            submissions,
            aborts,
            given_up,
            jobs: Mutex::new(jobs),
        }
    }

    /// Takes the name that the client knows the request by, while it lives.
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

    /// Sends the message that `header` makes for a fresh request.
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

    /// The tokens of `text`.
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
            .map_err(|error| self.no_room(matches!(error, flume::TrySendError::Full(_))))?;
        let lost = |_| RequestError::Internal("the answer of the tokenizer was lost".into());
        Ok(tokens.await.map_err(lost)??.ids)
    }

    /// Lets the tokenizer's threads end.
    pub(crate) fn release_tokenizer(&self) {
        self.jobs().take();
    }

    fn jobs(&self) -> MutexGuard<'_, Option<flume::Sender<Job>>> {
        // An option is whole at any time.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the scheduler give up the requests that clients know as `name`, or all; they
    /// end as it says. Gives how many there are.
    pub(crate) fn abort(&self, name: Option<&str>) -> usize {
        let rids = self.names.rids(name);
        let count = rids.len();
        for rid in rids {
            // Whoever would read it is gone only when the server is, and so is the request.
            let _ = self.given_up.send(rid);
        }
        count
    }

    /// Requests that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.signs.live.load(Ordering::Acquire)
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
        self.signs.admitted.fetch_add(1, Ordering::Relaxed);
        self.signs.live.fetch_add(1, Ordering::Relaxed);
        Ok(Answer {
            rid: Some(rid),
            has_name,
            events,
            aborts: self.aborts.clone(),
            signs: Arc::clone(&self.signs),
        })
    }

    fn send(&self, submission: Submission) -> Result<(), RequestError> {
        if self.signs.draining.load(Ordering::Relaxed) {
            return Err(RequestError::shutting_down());
        }
        let full = |error: flume::TrySendError<_>| matches!(error, flume::TrySendError::Full(_));
        let sent = self.submissions.try_send(submission);
        sent.map_err(|error| self.no_room(full(error)))
    }

    /// A channel did not take something: it is full, or its other end is gone.
    fn no_room(&self, full: bool) -> RequestError {
        if !full {
            return RequestError::shutting_down();
        }
        self.signs.refused.fetch_add(1, Ordering::Relaxed);
        RequestError::QueueFull("too many requests wait: try again later".into())
    }
}

/// The answer to one request, as it arrives. Dropped before its end, it aborts the
/// request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The request, until its last event.
    rid: Option<Rid>,
    /// Whether a client asked for a generation, and not we for a sign of life.
    has_name: bool,
    events: mpsc::Receiver<ResponseEvent>,
    aborts: flume::Sender<Rid>,
    signs: Arc<Signs>,
}

impl Answer {
    /// The next event. After the last one there is none.
    pub(crate) async fn next(&mut self) -> Option<ResponseEvent> {
        self.rid.as_ref()?;
        let event = self.events.recv().await;
        Some(self.seen(event))
    }

    /// The next event, if it is there already.
    pub(crate) fn next_now(&mut self) -> Option<ResponseEvent> {
        self.rid.as_ref()?;
        match self.events.try_recv() {
            Ok(event) => Some(self.seen(Some(event))),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(self.seen(None)),
        }
    }

    /// A channel that ends without a last event lost it: that is an end, too.
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
        // Before the abort: a request whose sink is closed is not begun any more.
        self.events.close();
        // An end that nobody has read is an end: the scheduler has nothing to give up.
        while let Ok(event) = self.events.try_recv() {
            if event.is_last() {
                self.rid = None;
            }
        }
        if let Some(rid) = self.rid.take() {
            if self.has_name {
                self.signs.aborted.fetch_add(1, Ordering::Relaxed);
            }
            // Whoever would read it is gone only when the server is.
            let _ = self.aborts.send(rid);
        }
        // Last: who is not live any more has left nothing to say.
        self.signs.live.fetch_sub(1, Ordering::Release);
    }
}
