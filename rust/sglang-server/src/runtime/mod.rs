//! A running frontend, from its start to its end.
//!
//! Invariant: when [`Server::start`] returns, the socket listens. When [`Server::shutdown`]
//! returns, no stage of the server runs any more, or the log names the threads that did not
//! end in time. A thread that serves HTTP may take a moment longer.

mod check;
mod http;
mod pipeline;

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sglang_http::listen;
use tracing::info;

use crate::{
    channel::{FromSchedulerRing, Refused, SchedulerInbox, ToScheduler},
    config::{FrontendConfig, ServerArgs},
    drain::{Drain, Ending},
    frontend::Frontend,
    tokenizer::{self, LoadError, TextTokenizer},
};
use pipeline::{Pipeline, Plan, Stages};

pub use check::StartError;

/// A running frontend.
#[derive(Debug)]
pub struct Server {
    frontend: Arc<Frontend>,
    address: SocketAddr,
    inbox: SchedulerInbox,
    ring: FromSchedulerRing,
    /// `None` after the first call of [`Self::shutdown`].
    stages: Mutex<Option<Stages>>,
    drain: Arc<Drain>,
}

impl Server {
    /// Starts all threads and listens on `args.port + port_offset`. The threads are bound to
    /// `cores`; if there are fewer cores than threads, no thread is bound.
    ///
    /// # Errors
    ///
    /// When an argument is invalid, the tokenizer cannot be loaded, the server cannot listen on
    /// the address, or the system cannot start a thread.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use sglang_server::{
    ///     Server,
    ///     config::{FrontendConfig, ModelConfig, ServerArgs},
    /// };
    ///
    /// let args = ServerArgs::of_model("model", ModelConfig::of_text(1024, 300));
    /// let server = Server::start(args, FrontendConfig::default(), 0, &[])?;
    /// assert_ne!(0, server.address().port());
    /// assert!(server.take(256).is_empty());
    ///
    /// server.shutdown(Duration::ZERO);
    /// assert!(server.is_shut_down());
    /// # Ok::<(), sglang_server::StartError>(())
    /// ```
    pub fn start(
        args: ServerArgs,
        config: FrontendConfig,
        port_offset: u16,
        cores: &[usize],
    ) -> Result<Self, StartError> {
        Self::boot(args, config, port_offset, cores, load_tokenizer)
    }

    /// Like [`Self::start`], with the given tokenizer instead of the one that `args` names.
    ///
    /// # Errors
    ///
    /// As for [`Self::start`].
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sglang_server::{
    ///     Server,
    ///     config::{FrontendConfig, ModelConfig, ServerArgs},
    ///     tokenizer::ByteTokenizer,
    /// };
    ///
    /// let args = ServerArgs::of_model("model", ModelConfig::of_text(1024, 300));
    /// let tokenizer = Arc::new(ByteTokenizer::default());
    /// let server = Server::start_with(args, FrontendConfig::default(), 0, &[], tokenizer)?;
    /// # Ok::<(), sglang_server::StartError>(())
    /// ```
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
        check::check_args(&args)?;
        check::check_capacities(&config)?;
        let listener = listen(&args.host, args.port, port_offset)
            .map_err(|error| StartError::Listen(error.to_string()))?;
        let address = listener.local_addr()?;
        let tokenizer = tokenizer(&args)?;
        let Pipeline {
            frontend,
            inbox,
            ring,
            stages,
        } = Plan::new(args, config, tokenizer, cores).start(listener)?;
        info!(%address, "listening");
        Ok(Self {
            frontend,
            address,
            inbox,
            ring,
            stages: Mutex::new(Some(stages)),
            drain: Arc::default(),
        })
    }

    /// The address that the server listens on, with the port that the system chose if
    /// `args.port` is 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The drain time to use when the caller of [`Self::shutdown`] has no preference.
    #[must_use]
    pub fn drain_deadline(&self) -> Duration {
        self.frontend.config.drain_deadline
    }

    /// Takes up to `max` messages for the scheduler. Never waits.
    #[must_use]
    pub fn take(&self, max: usize) -> Vec<ToScheduler> {
        self.frontend.status.beat();
        self.inbox.take(max)
    }

    /// Waits for a message for the scheduler, at most for `timeout`. Returns whether
    /// [`Self::take`] will find one.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        self.frontend.status.beat();
        let is_there = self.inbox.wait(timeout);
        self.frontend.status.beat();
        is_there
    }

    /// Whether no new message will arrive: [`Self::take`] returns what is left.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Pushes a frame from the scheduler if the ring has room. Returns false once the
    /// drain of a shutdown has ended.
    ///
    /// # Errors
    ///
    /// Gives the frame back when the ring is full.
    pub fn push(&self, frame: Vec<u8>) -> Result<bool, Vec<u8>> {
        match self.ring.push(frame) {
            Ok(()) => Ok(true),
            Err(Refused::Closed(_)) => Ok(false),
            Err(Refused::Full(frame)) => Err(frame),
        }
    }

    /// Pushes a frame from the scheduler and waits while the ring is full. Returns false
    /// once the drain of a shutdown has ended.
    #[must_use]
    pub fn push_blocking(&self, frame: Vec<u8>) -> bool {
        self.ring.push_blocking(frame)
    }

    /// Stops accepting connections, waits at most for `drain` until every request is
    /// answered and every answer is sent, and fails the remaining requests.
    ///
    /// A second call waits for the first one and can shorten its drain. Calls after the end
    /// return at once.
    pub fn shutdown(&self, drain: Duration) {
        self.drain.shorten(drain);
        let stages = self.stages().take();
        let Some(stages) = stages else {
            return self.drain.wait_until_ended();
        };
        let _ending = Ending::of(&self.drain);
        self.frontend.start_draining();
        let answered = self.frontend.status.live.wait();
        let _ = self.drain.block_on(answered, Instant::now());
        self.frontend.release_tokenizer();
        stages.end(&self.drain);
    }

    fn stages(&self) -> MutexGuard<'_, Option<Stages>> {
        // An option is valid at any time, so a poisoned lock does no harm.
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}

/// Loads the tokenizer that `args` name; `None` when the server runs without one.
fn load_tokenizer(args: &ServerArgs) -> Result<Option<Arc<dyn TextTokenizer>>, LoadError> {
    if args.skip_tokenizer_init {
        return Ok(None);
    }
    tokenizer::load(args.tokenizer_path.as_deref().map(Path::new)).map(Some)
}
