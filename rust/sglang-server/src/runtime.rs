//! A running frontend: its threads from start to end.
//!
//! Invariant: when `start` returns the socket listens; when `shutdown` returns nothing of
//! the server runs any more, or the log says what was left behind.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use flume::RecvTimeoutError;
use serde_json::Map;
use tokio::{runtime, sync::watch};
use tracing::{info, warn};

use crate::{
    api::{
        listener::listen,
        serve::{CLOSE_GRACE, serve},
    },
    channel::{self, FromSchedulerRing, Refused, SchedulerInbox, ToScheduler},
    config::{FrontendConfig, ServerArgs},
    cores::Cores,
    detokenizer::{self, Shards},
    drain::{Drain, Ending},
    error::RequestError,
    from_scheduler,
    frontend::{Frontend, Signs},
    message::SamplingParams,
    to_scheduler::{Inlets, Intake, Submission},
    tokenizer::{self, LoadError, TextTokenizer},
    workers::Workers,
};

/// How long threads may take to end when there is nothing left for them to do.
const JOIN: Duration = Duration::from_secs(2);

/// How often a server that goes down looks whether everything is answered.
const POLL: Duration = Duration::from_millis(5);

/// Most places of a queue: what would fill it needs more memory than there is.
const MOST_ROOM: usize = 1 << 24;

/// Most threads of a kind.
const MOST_THREADS: usize = 1024;

/// Fewest threads that serve HTTP.
const LEAST_HTTP_THREADS: usize = 4;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Arguments that make no sense.
    #[error("invalid server_args: {0}")]
    Args(String),
    /// A queue without room, or with room for more than can ever wait.
    #[error("invalid capacity: {0} is {1}; it must be from 1 to {MOST_ROOM}")]
    Capacity(&'static str, usize),
    /// No address to listen on.
    #[error("{0}")]
    Listen(String),
    /// No tokenizer.
    #[error("runtime start failed: {0}")]
    Tokenizer(#[from] LoadError),
    /// No thread, or no socket.
    #[error("runtime start failed: {0}")]
    System(#[from] io::Error),
}

/// A running frontend.
#[derive(Debug)]
pub struct Server {
    frontend: Arc<Frontend>,
    address: SocketAddr,
    inbox: SchedulerInbox,
    ring: FromSchedulerRing,
    /// Until it is shut down.
    running: Mutex<Option<Running>>,
    drain: Drain,
}

/// What ends a server.
#[derive(Debug)]
struct Running {
    /// True: accept no more connections.
    stop_http: watch::Sender<bool>,
    http: runtime::Runtime,
    /// Dropped when the last connection has ended.
    http_ended: flume::Receiver<()>,
    /// Dropped: the intake ends.
    stop_intake: flume::Sender<()>,
    /// What came in while the intake ended.
    late: flume::Receiver<Submission>,
    /// Dropped: the dispatcher ends.
    stop_dispatcher: flume::Sender<()>,
    threads: Vec<(&'static str, Workers)>,
    tokenizers: Option<tokenizer::Pool>,
    /// Dropped: the shards fail what they have and end.
    stop_shards: flume::Sender<()>,
    shards: Shards,
}

impl Server {
    /// Starts all threads and listens.
    ///
    /// # Errors
    ///
    /// Arguments that make no sense, no tokenizer, no address, a port that is taken, or
    /// too few threads.
    pub fn start(
        args: ServerArgs,
        config: FrontendConfig,
        port_offset: u16,
        cores: &[usize],
    ) -> Result<Self, StartError> {
        Self::boot(args, config, port_offset, cores, tokenizer)
    }

    /// As [`Self::start`], with a tokenizer of one's own instead of the one that `args` name.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn start_with(
        args: ServerArgs,
        config: FrontendConfig,
        port_offset: u16,
        cores: &[usize],
        tokenizer: Arc<dyn TextTokenizer>,
    ) -> Result<Self, StartError> {
        Self::boot(args, config, port_offset, cores, |_| Ok(Some(tokenizer)))
    }

    fn boot(
        args: ServerArgs,
        config: FrontendConfig,
        port_offset: u16,
        cores: &[usize],
        tokenizer: impl FnOnce(&ServerArgs) -> Result<Option<Arc<dyn TextTokenizer>>, LoadError>,
    ) -> Result<Self, StartError> {
        check(&args)?;
        check_room(&config)?;
        let listener = listen(&args.host, args.port, port_offset)
            .map_err(|error| StartError::Listen(error.to_string()))?;
        let address = listener.local_addr()?;
        let http_threads = LEAST_HTTP_THREADS
            .max(args.tokenizer_worker_num)
            .max(args.detokenizer_worker_num);
        let cores = Cores::plan(
            cores,
            http_threads,
            args.tokenizer_worker_num,
            args.detokenizer_worker_num,
        );
        let tokenizer = tokenizer(&args)?;
        let cap = config.stage_cap;
        let signs = Arc::new(Signs::new());

        let (aborts, abort_lane) = flume::unbounded();
        let (given_up, given_up_lane) = flume::unbounded();
        let (stop_shards, shutdown) = flume::bounded(0);
        let shards = detokenizer::Config {
            shards: args.detokenizer_worker_num,
            capacity: cap,
            tokenizer: tokenizer.clone(),
            aborts: aborts.clone(),
            panics: Arc::clone(&signs.panics),
            shutdown,
        };
        let shards = Shards::start(&shards, &cores.detokenizer)?;
        let inboxes = shards.inboxes();
        let tokenizers = tokenizer
            .as_ref()
            .map(|tokenizer| {
                let threads = args.tokenizer_worker_num;
                tokenizer::Pool::start(tokenizer, threads, cap, &signs.panics, &cores.tokenizer)
            })
            .transpose()?;
        let jobs = tokenizers.as_ref().map(tokenizer::Pool::inbox);

        let args = Arc::new(args);
        let (ring, inbox) = channel::to_scheduler(config.to_scheduler_cap);
        let (submissions, submission_inbox) = flume::bounded(cap);
        let late = submission_inbox.clone();
        let (tokenized_lane, tokenized) = flume::unbounded();
        let (stop_intake, shutdown) = flume::bounded(0);
        let inlets = Inlets {
            submissions: submission_inbox,
            tokenized,
            aborts: abort_lane,
            given_up: given_up_lane,
            shutdown,
        };
        let intake = Intake::new(
            Arc::clone(&args),
            ring,
            inboxes.clone(),
            jobs.clone(),
            tokenized_lane,
            Arc::clone(&signs.refused),
            Arc::clone(&signs.panics),
        );
        let intake = Workers::spawn(
            "to-scheduler",
            &cores.intake,
            vec![move || intake.run(&inlets)],
        )?;

        let (from_scheduler, frames) = channel::from_scheduler(config.from_scheduler_cap);
        let (stop_dispatcher, stopped) = flume::bounded(0);
        let (activity, panics) = (Arc::clone(&signs.frames), Arc::clone(&signs.panics));
        let dispatch = move || from_scheduler::run(&frames, &stopped, &inboxes, &activity, &panics);
        let dispatcher = Workers::spawn("from-scheduler", &cores.dispatcher, vec![dispatch])?;

        let frontend = Frontend::new(args, config, signs, submissions, aborts, given_up, jobs);
        let frontend = Arc::new(frontend);
        let (stop_http, stop) = watch::channel(false);
        let (http, http_ended) = start_http(listener, &frontend, stop, http_threads, &cores)?;
        info!(%address, "listening");
        Ok(Self {
            frontend,
            address,
            inbox,
            ring: from_scheduler,
            drain: Drain::default(),
            running: Mutex::new(Some(Running {
                stop_http,
                http,
                http_ended,
                stop_intake,
                late,
                stop_dispatcher,
                threads: vec![("to-scheduler", intake), ("from-scheduler", dispatcher)],
                tokenizers,
                stop_shards,
                shards,
            })),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How long requests in flight have when nobody says otherwise.
    #[must_use]
    pub fn drain_deadline(&self) -> Duration {
        self.frontend.config.drain_deadline
    }

    /// Up to `most` messages for the scheduler. Never waits.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<ToScheduler> {
        self.frontend.signs.beat();
        self.inbox.take(most)
    }

    /// Waits for a message; says whether there is one.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        self.frontend.signs.beat();
        let there = self.inbox.wait(timeout);
        self.frontend.signs.beat();
        there
    }

    /// Whether nothing new comes in: what is in the inbox is all.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Hands a frame over if there is room: true; false when the server is shutting down.
    ///
    /// # Errors
    ///
    /// The frame, when there is no room.
    pub fn push(&self, frame: Vec<u8>) -> Result<bool, Vec<u8>> {
        match self.ring.push(frame) {
            Ok(()) => Ok(true),
            Err(Refused::Closed(_)) => Ok(false),
            Err(Refused::Full(frame)) => Err(frame),
        }
    }

    /// Hands a frame over as soon as there is room. False when the server is shutting down.
    #[must_use]
    pub fn push_blocking(&self, frame: Vec<u8>) -> bool {
        self.ring.push_blocking(frame)
    }

    /// Stops accepting, waits at most for `drain` until everything is answered and sent,
    /// and ends the rest with an error.
    ///
    /// Once more waits until that is done, and may shorten it. A server that has ended
    /// ends no more.
    pub fn shutdown(&self, drain: Duration) {
        self.drain.shorten(drain);
        let running = self.running().take();
        let Some(running) = running else {
            return self.drain.wait_until_ended();
        };
        let _ending = Ending::of(&self.drain);
        self.frontend.signs.draining.store(true, Ordering::Relaxed);
        let _ = running.stop_http.send(true);
        while self.frontend.live() > 0 && !self.drain.is_over() {
            thread::sleep(POLL);
        }
        self.frontend.release_tokenizer();
        running.end(&self.drain);
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        // An option is whole at any time.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}

impl Running {
    /// From the ends of a request's way to its middle: nothing new comes in, what is there
    /// fails, and answers and errors go out before the connections end.
    fn end(self, drain: &Drain) {
        drop(self.stop_intake);
        drop(self.stop_dispatcher);
        let deadline = Instant::now() + JOIN;
        let mut left = Vec::new();
        for (name, threads) in self.threads {
            left.push((name, threads.join(deadline)));
        }
        for submission in self.late.drain() {
            submission.refuse(&RequestError::shutting_down());
        }
        drop(self.stop_shards);
        left.push(("detokenizer", self.shards.join(deadline)));
        let last_words = Instant::now() + CLOSE_GRACE;
        // Nobody sends: it is closed by the last connection's end.
        while self.http_ended.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
            if drain.is_over() && last_words <= Instant::now() {
                break;
            }
        }
        self.http.shutdown_background();
        if let Some(tokenizers) = self.tokenizers {
            left.push(("tokenizer", tokenizers.join(deadline)));
        }
        for (name, count) in left.into_iter().filter(|(_, count)| *count > 0) {
            warn!("{count} thread(s) `{name}` did not end and are left behind");
        }
    }
}

/// Refuses arguments that would have every request, or some client's, refused later.
fn check(args: &ServerArgs) -> Result<(), StartError> {
    if args.served_model_name.is_empty() {
        return Err(StartError::Args("`served_model_name` is empty".into()));
    }
    if args.tokenizer_worker_num.max(args.detokenizer_worker_num) > MOST_THREADS {
        let message = format!(
            "`tokenizer_worker_num` and `detokenizer_worker_num` may be {MOST_THREADS} at most"
        );
        return Err(StartError::Args(message));
    }
    let preferred = args.preferred_sampling_params.clone().unwrap_or_default();
    match SamplingParams::from_json(preferred, &Map::new(), "preferred_sampling_params") {
        Ok(_) => Ok(()),
        Err(RequestError::Invalid { message, .. }) => Err(StartError::Args(message)),
        Err(other) => Err(StartError::Args(other.to_string())),
    }
}

/// Refuses queues that would hold nothing, or that cannot be made.
fn check_room(config: &FrontendConfig) -> Result<(), StartError> {
    let queues = [
        ("to_scheduler_cap", config.to_scheduler_cap),
        ("from_scheduler_cap", config.from_scheduler_cap),
        ("stage_channel_cap", config.stage_cap),
    ];
    match queues
        .into_iter()
        .find(|(_, room)| !(1..=MOST_ROOM).contains(room))
    {
        Some((name, room)) => Err(StartError::Capacity(name, room)),
        None => Ok(()),
    }
}

fn tokenizer(args: &ServerArgs) -> Result<Option<Arc<dyn TextTokenizer>>, LoadError> {
    if args.skip_tokenizer_init {
        return Ok(None);
    }
    tokenizer::load(args.tokenizer_path.as_deref().map(Path::new)).map(Some)
}

/// The runtime that serves `listener`, and what is closed when it has ended.
fn start_http(
    listener: std::net::TcpListener,
    frontend: &Arc<Frontend>,
    stop: watch::Receiver<bool>,
    threads: usize,
    cores: &Cores,
) -> io::Result<(runtime::Runtime, flume::Receiver<()>)> {
    let http = runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("api-runtime")
        .on_thread_start(cores.http())
        .enable_all()
        .build()?;
    let (alive, ended) = flume::bounded::<()>(0);
    let listener = {
        let _inside = http.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let frontend = Arc::clone(frontend);
    http.spawn(async move {
        let _alive = alive;
        serve(listener, frontend, stop).await;
    });
    Ok((http, ended))
}
