//! The time that a server takes to go down, which several may wait for and shorten.
//!
//! Invariant: it only gets less; whoever waits for the end is told of it, however it comes.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Longer than anybody waits.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How long what is in flight may take once the server goes down: the least that anybody
/// has said.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    has_ended: bool,
}

impl Drain {
    pub(crate) fn shorten(&self, drain: Duration) {
        let now = Instant::now();
        // An end of time may not exist.
        let until = now.checked_add(drain).unwrap_or(now + FOR_EVER);
        let mut state = self.state();
        state.until = Some(state.until.map_or(until, |before| before.min(until)));
    }

    pub(crate) fn is_over(&self) -> bool {
        let until = self.state().until;
        until.is_some_and(|until| until <= Instant::now())
    }

    pub(crate) fn wait_until_ended(&self) {
        let waited = self
            .ended
            .wait_while(self.state(), |state| !state.has_ended);
        drop(waited);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each field is whole at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that a server has ended, however.
pub(crate) struct Ending<'a>(&'a Drain);

impl<'a> Ending<'a> {
    pub(crate) fn of(drain: &'a Drain) -> Self {
        Self(drain)
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.state().has_ended = true;
        self.0.ended.notify_all();
    }
}
