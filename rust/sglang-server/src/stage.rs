//! One stage of the server: its threads and the signal that stops them.
//!
//! Invariant: dropping a stage without [`Stage::join`] stops its threads, but does not wait for
//! them.

use std::{fmt, io, time::Instant};

use tracing::warn;

use crate::workers::{OnStart, Workers};

/// The threads of one stage.
pub(crate) struct Stage {
    name: &'static str,
    /// Dropping it stops the threads. It is a channel and not a `CancellationToken` because
    /// the threads block in a flume selector, which a token cannot wake. `None` for threads
    /// that stop when the last sender of their inbox is dropped.
    stop: Option<flume::Sender<()>>,
    /// Waits for the threads until a deadline; returns how many still run.
    workers: Box<dyn FnOnce(Instant) -> usize + Send>,
}

impl Stage {
    /// Starts the stage's only thread, `{name}-0`. `body` gets a receiver and must return once
    /// that receiver is disconnected.
    pub(crate) fn start<F>(name: &'static str, on_start: &OnStart, body: F) -> io::Result<Self>
    where
        F: FnOnce(flume::Receiver<()>) + Send + 'static,
    {
        let (stop, stopped) = flume::bounded(0);
        let workers = Workers::spawn(name, on_start, vec![move || body(stopped)])?;
        let join = move |deadline| workers.join(deadline);
        Ok(Self::of(name, Some(stop), join))
    }

    /// Makes a stage of threads that already run. `workers` waits for them.
    pub(crate) fn of(
        name: &'static str,
        stop: Option<flume::Sender<()>>,
        workers: impl FnOnce(Instant) -> usize + Send + 'static,
    ) -> Self {
        Self {
            name,
            stop,
            workers: Box::new(workers),
        }
    }

    /// Tells the threads to stop, without waiting.
    pub(crate) fn stop(&mut self) {
        self.stop = None;
    }

    /// Stops the threads and waits for them until `deadline`. Threads that still run then
    /// are reported in the log and keep running.
    pub(crate) fn join(mut self, deadline: Instant) {
        self.stop();
        let count = (self.workers)(deadline);
        if count > 0 {
            let name = self.name;
            warn!("{count} thread(s) `{name}` did not end in time and keep running");
        }
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, .. } = self;
        f.debug_struct("Stage")
            .field("name", name)
            .finish_non_exhaustive()
    }
}
