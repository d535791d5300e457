//! A group of threads that are started together and joined with a deadline.
//!
//! Invariant: a join ends at its deadline, even when a thread hangs.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Runs first in each thread, with the thread's index: for example, binds it to a core.
pub(crate) type OnStart = Arc<dyn Fn(usize) + Send + Sync>;

/// Threads with the same name and consecutive numbers.
#[derive(Debug)]
pub(crate) struct Workers {
    handles: Vec<JoinHandle<()>>,
    /// Disconnected when the last thread has ended.
    ended: flume::Receiver<()>,
}

impl Workers {
    /// Starts one thread `{name}-{i}` for each of `bodies`.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread. The threads started before it must end by
    /// themselves, which they do when their inboxes close.
    pub(crate) fn spawn<F>(name: &str, on_start: &OnStart, bodies: Vec<F>) -> io::Result<Self>
    where
        F: FnOnce() + Send + 'static,
    {
        let (alive, ended) = flume::bounded(0);
        let start = |(index, body): (usize, F)| {
            let (on_start, alive) = (Arc::clone(on_start), alive.clone());
            thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || {
                    let _alive = alive;
                    on_start(index);
                    body();
                })
        };
        let handles = bodies
            .into_iter()
            .enumerate()
            .map(start)
            .collect::<io::Result<_>>()?;
        Ok(Self { handles, ended })
    }

    /// Waits for all threads until `deadline`. Returns how many still run.
    #[must_use]
    pub(crate) fn join(self, deadline: Instant) -> usize {
        let left = deadline.saturating_duration_since(Instant::now());
        // No thread sends anything: this returns at the deadline, or when all threads have ended.
        let ended = self.ended.recv_timeout(left.max(Duration::from_millis(1)));
        if ended == Err(flume::RecvTimeoutError::Timeout) {
            return self
                .handles
                .iter()
                .filter(|handle| !handle.is_finished())
                .count();
        }
        for handle in self.handles {
            // A panic was already reported, by the code that caught it or by the panic hook.
            let _ = handle.join();
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        thread,
        time::{Duration, Instant},
    };

    use super::{OnStart, Workers};

    fn in_20_seconds() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn each_thread_is_numbered_and_starts_with_its_index() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let on_start: OnStart = {
            let seen = Arc::clone(&seen);
            Arc::new(move |index| {
                let name = thread::current().name().unwrap().to_owned();
                seen.lock().unwrap().push((name, index));
            })
        };
        let workers = Workers::spawn("tokenizer", &on_start, vec![|| (), || ()]).unwrap();
        assert_eq!(0, workers.join(in_20_seconds()));
        let mut seen = seen.lock().unwrap();
        seen.sort();
        let expected = [("tokenizer-0".to_owned(), 0), ("tokenizer-1".to_owned(), 1)];
        assert_eq!(expected, seen[..]);
    }

    #[test]
    fn a_thread_that_still_runs_at_the_deadline_is_counted() {
        let (hold, held) = flume::bounded::<()>(0);
        let wait = move || {
            let _ = held.recv();
        };
        let on_start: OnStart = Arc::new(|_| ());
        let workers = Workers::spawn("stuck", &on_start, vec![wait]).unwrap();
        assert_eq!(1, workers.join(Instant::now()));
        drop(hold);
    }

    #[test]
    fn a_thread_that_panicked_counts_as_ended() {
        let on_start: OnStart = Arc::new(|_| ());
        let workers = Workers::spawn("broken", &on_start, vec![|| panic!("on purpose")]).unwrap();
        assert_eq!(0, workers.join(in_20_seconds()));
    }
}
