//! The deadline of a shutdown. Several threads may wait for the same shutdown, and each may
//! shorten the deadline.
//!
//! Invariant: the deadline only moves closer; every waiting thread wakes when the shutdown
//! ends, even when it ends by a panic.

use std::{
    pin::pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

/// Replaces a drain time whose deadline the clock cannot represent. It is 136 years.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How long requests in flight may take once the server shuts down: the shortest time that
/// any caller of the shutdown has given.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    deadline: Option<Instant>,
    /// Whether the future in [`Drain::block_on`] can make progress.
    is_woken: bool,
    has_ended: bool,
}

impl Drain {
    /// Moves the deadline to `drain` from now, if that is earlier.
    pub(crate) fn shorten(&self, drain: Duration) {
        let now = Instant::now();
        let deadline = now.checked_add(drain).unwrap_or(now + FOREVER);
        let mut state = self.state();
        state.deadline = Some(
            state
                .deadline
                .map_or(deadline, |before| before.min(deadline)),
        );
        drop(state);
        self.changed.notify_all();
    }

    /// Runs `future` on this thread until it is ready, or until the deadline and `at_least`
    /// have both passed.
    ///
    /// tokio's `block_on` cannot be used: it panics on a thread that already runs a tokio
    /// runtime, such as a thread of a program that embeds the server.
    pub(crate) fn block_on<F: Future>(
        self: &Arc<Self>,
        future: F,
        at_least: Instant,
    ) -> Option<F::Output> {
        let mut future = pin!(future);
        let waker = Waker::from(Arc::clone(self));
        loop {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(output) = polled {
                return Some(output);
            }
            if !self.wait_until_woken(at_least) {
                return None;
            }
        }
    }

    /// Waits until the future can make progress. Returns false when the deadline and
    /// `at_least` have passed.
    fn wait_until_woken(&self, at_least: Instant) -> bool {
        let mut state = self.state();
        while !state.is_woken {
            let left = state.deadline.map(|deadline| {
                let deadline = deadline.max(at_least);
                deadline.saturating_duration_since(Instant::now())
            });
            state = match left {
                Some(Duration::ZERO) => return false,
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
        state.is_woken = false;
        true
    }

    /// Waits until the shutdown has ended.
    pub(crate) fn wait_until_ended(&self) {
        let waited = self
            .changed
            .wait_while(self.state(), |state| !state.has_ended);
        drop(waited);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each field is valid by itself at any time, so a poisoned lock does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Drain {
    fn wake(self: Arc<Self>) {
        self.state().is_woken = true;
        self.changed.notify_all();
    }
}

/// Marks the shutdown as ended when it is dropped, even if a panic drops it.
pub(crate) struct Ending<'a>(&'a Drain);

impl<'a> Ending<'a> {
    pub(crate) fn of(drain: &'a Drain) -> Self {
        Self(drain)
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.state().has_ended = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::Arc,
        thread,
        time::{Duration, Instant},
    };

    use tokio::sync::oneshot;

    use super::Drain;

    const LONG: Duration = Duration::from_mins(10);

    fn lasting(time: Duration) -> Arc<Drain> {
        let drain = Arc::new(Drain::default());
        drain.shorten(time);
        drain
    }

    #[test]
    fn a_ready_future_is_returned_even_after_the_deadline() {
        let drain = lasting(Duration::ZERO);
        assert_eq!(Some(7), drain.block_on(ready(7), Instant::now()));
    }

    #[test]
    fn a_future_that_becomes_ready_wakes_the_thread() {
        let drain = lasting(LONG);
        let (sender, receiver) = oneshot::channel();
        let sending = thread::spawn(move || sender.send(7).unwrap());
        let received = drain.block_on(receiver, Instant::now());
        assert_eq!(Some(Ok(7)), received);
        sending.join().unwrap();
    }

    #[test]
    fn the_deadline_ends_a_wait_but_not_before_the_least_time() {
        let drain = lasting(Duration::ZERO);
        let at_least = Instant::now() + Duration::from_millis(20);
        assert_eq!(None, drain.block_on(pending::<()>(), at_least));
        assert!(at_least <= Instant::now());
    }

    #[test]
    fn a_shorter_deadline_ends_a_wait_and_a_longer_one_changes_nothing() {
        let drain = lasting(LONG);
        let waiting = {
            let drain = Arc::clone(&drain);
            thread::spawn(move || drain.block_on(pending::<()>(), Instant::now()))
        };
        drain.shorten(Duration::ZERO);
        drain.shorten(Duration::MAX);
        assert_eq!(None, waiting.join().unwrap());
    }
}
