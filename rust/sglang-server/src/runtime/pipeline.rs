//! The stages of a server: how each is started, and the order in which they end.

use std::{
    io,
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use super::http::Http;
use crate::{
    channel::{self, FromSchedulerRing, SchedulerInbox, ToSchedulerRing},
    config::{FrontendConfig, ServerArgs},
    cores::Cores,
    detokenizer::{self, Inboxes, Shards},
    drain::Drain,
    error::RequestError,
    from_scheduler,
    frontend::{Frontend, Status},
    ids::Rid,
    stage::Stage,
    to_scheduler::{self, Inlets, Intake, Submission},
    tokenizer::{self, Job, TextTokenizer},
};

/// How long threads may take to end once they have no work left.
const JOIN: Duration = Duration::from_secs(2);

/// Minimum number of threads that serve HTTP.
const MIN_HTTP_THREADS: usize = 4;

/// A started pipeline: its entrances for HTTP and for the scheduler, and its stages.
pub(super) struct Pipeline {
    pub(super) frontend: Arc<Frontend>,
    pub(super) inbox: SchedulerInbox,
    pub(super) ring: FromSchedulerRing,
    pub(super) stages: Stages,
}

/// The inputs for starting the stages.
pub(super) struct Plan {
    args: Arc<ServerArgs>,
    config: FrontendConfig,
    tokenizer: Option<Arc<dyn TextTokenizer>>,
    http_threads: usize,
    cores: Cores,
    status: Arc<Status>,
}

impl Plan {
    /// Threads are bound to `cores`. If it is empty, they are not bound.
    pub(super) fn new(
        args: ServerArgs,
        config: FrontendConfig,
        tokenizer: Option<Arc<dyn TextTokenizer>>,
        cores: &[usize],
    ) -> Self {
        let (tokenizers, shards) = (args.tokenizer_worker_num, args.detokenizer_worker_num);
        let http_threads = MIN_HTTP_THREADS.max(tokenizers).max(shards);
        Self {
            cores: Cores::plan(cores, http_threads, tokenizers, shards),
            args: Arc::new(args),
            config,
            tokenizer,
            http_threads,
            status: Arc::new(Status::new()),
        }
    }

    /// Starts every stage. If a stage cannot start, the stages that already run stop, because
    /// their channels are dropped.
    pub(super) fn start(self, listener: TcpListener) -> io::Result<Pipeline> {
        let (ring, inbox) = channel::to_scheduler(self.config.to_scheduler_cap);
        let (from_ring, frames) = channel::from_scheduler(self.config.from_scheduler_cap);
        let (entrance, inlets) = to_scheduler::entrance(self.config.stage_cap);
        let late = inlets.submissions.clone();

        let (shards, inboxes) = self.start_shards(entrance.aborts.clone())?;
        let (tokenizers, jobs) = self.start_tokenizers()?.unzip();
        let to_scheduler = self.start_to_scheduler(inlets, ring, inboxes.clone(), jobs.clone())?;
        let from_scheduler = self.start_from_scheduler(frames, inboxes)?;
        let frontend = Frontend::new(self.args, self.config, self.status, entrance, jobs);
        let frontend = Arc::new(frontend);
        let http = Http::start(listener, &frontend, self.http_threads, &self.cores)?;
        Ok(Pipeline {
            frontend,
            inbox,
            ring: from_ring,
            stages: Stages {
                http,
                to_scheduler,
                late,
                from_scheduler,
                shards,
                tokenizers,
            },
        })
    }

    /// The stage that turns tokens into text, with one thread per shard.
    fn start_shards(&self, aborts: flume::Sender<Rid>) -> io::Result<(Stage, Inboxes)> {
        let (stop, shutdown) = flume::bounded(0);
        let config = detokenizer::Config {
            shards: self.args.detokenizer_worker_num,
            capacity: self.config.stage_cap,
            tokenizer: self.tokenizer.clone(),
            aborts,
            panics: Arc::clone(&self.status.panics),
            shutdown,
        };
        let shards = Shards::start(&config, &self.cores.detokenizer)?;
        let inboxes = shards.inboxes();
        let join = |deadline| shards.join(deadline);
        Ok((Stage::of("detokenizer", Some(stop), join), inboxes))
    }

    /// The stage that turns text into tokens; `None` for a server without a tokenizer.
    fn start_tokenizers(&self) -> io::Result<Option<(Stage, flume::Sender<Job>)>> {
        let Some(tokenizer) = &self.tokenizer else {
            return Ok(None);
        };
        let pool = tokenizer::Pool::start(
            tokenizer,
            self.args.tokenizer_worker_num,
            self.config.stage_cap,
            &self.status.panics,
            &self.cores.tokenizer,
        )?;
        let inbox = pool.inbox();
        let join = |deadline| pool.join(deadline);
        Ok(Some((Stage::of("tokenizer", None, join), inbox)))
    }

    /// The stage that takes requests to the scheduler.
    fn start_to_scheduler(
        &self,
        inlets: Inlets,
        ring: ToSchedulerRing,
        shards: Inboxes,
        tokenizer: Option<flume::Sender<Job>>,
    ) -> io::Result<Stage> {
        let intake = Intake::new(to_scheduler::Resources {
            args: Arc::clone(&self.args),
            ring,
            shards,
            tokenizer,
            refused: Arc::clone(&self.status.refused),
            panics: Arc::clone(&self.status.panics),
        });
        let run = move |stopped| intake.run(&inlets, &stopped);
        Stage::start("to-scheduler", &self.cores.to_scheduler, run)
    }

    /// The stage that takes the scheduler's frames to the shards.
    fn start_from_scheduler(
        &self,
        frames: flume::Receiver<Vec<u8>>,
        shards: Inboxes,
    ) -> io::Result<Stage> {
        let (activity, panics) = (
            Arc::clone(&self.status.frames),
            Arc::clone(&self.status.panics),
        );
        let run =
            move |stopped| from_scheduler::run(&frames, &stopped, &shards, &activity, &panics);
        Stage::start("from-scheduler", &self.cores.from_scheduler, run)
    }
}

/// The running stages.
#[derive(Debug)]
pub(super) struct Stages {
    http: Http,
    to_scheduler: Stage,
    /// Receives the submissions that are still queued when `to_scheduler` ends.
    late: flume::Receiver<Submission>,
    from_scheduler: Stage,
    shards: Stage,
    tokenizers: Option<Stage>,
}

impl Stages {
    /// Ends the stages. The two stages that take in work end first. Then the shards fail the
    /// remaining requests. The connections end after the shards, because they carry those
    /// errors to the clients.
    pub(super) fn end(mut self, drain: &Arc<Drain>) {
        let deadline = Instant::now() + JOIN;
        self.to_scheduler.stop();
        self.from_scheduler.stop();
        self.to_scheduler.join(deadline);
        self.from_scheduler.join(deadline);
        for submission in self.late.drain() {
            submission.refuse(&RequestError::shutting_down());
        }
        self.shards.join(deadline);
        self.http.end(drain);
        if let Some(tokenizers) = self.tokenizers {
            tokenizers.join(deadline);
        }
    }
}
