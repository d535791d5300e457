//! The times at which a client is probed after its end of stream.
//!
//! A probe is a few bytes that every client ignores: an interim response before the response,
//! a comment between events. The kernel of a client that has disconnected answers with RST.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

use super::exchange::Phase;

/// The probe before a response.
pub(super) const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Maximum number of probes for one response: some clients fail after five interim responses.
/// The probes are sent after 0, 1, 3, 7 and 15 s. After that, TCP keepalive finds a lost client.
const MAX_PROBES: u32 = 5;

/// The probes that were sent in one phase of one exchange.
pub(super) struct Probes {
    phase: Phase,
    sent: u32,
    /// The time of the next probe; `None` before the first one and after the last one.
    next: Option<Pin<Box<Sleep>>>,
}

impl Probes {
    pub(super) fn new(phase: Phase) -> Self {
        Self {
            phase,
            sent: 0,
            next: None,
        }
    }

    /// Restarts the schedule if the exchange has reached another phase.
    pub(super) fn enter(&mut self, phase: Phase) {
        if phase != self.phase {
            *self = Self::new(phase);
        }
    }

    /// Whether to send a probe now. The task is woken when the next one is due.
    pub(super) fn poll_due(&mut self, context: &mut Context<'_>) -> bool {
        let due = match &mut self.next {
            None => self.sent == 0,
            Some(next) => next.as_mut().poll(context) == Poll::Ready(()),
        };
        if due {
            let pause = Duration::from_secs(1 << self.sent);
            self.sent += 1;
            self.next = (self.sent < MAX_PROBES).then(|| Box::pin(sleep(pause)));
            // The first poll of a timer registers the waker. If the timer has already expired, it
            // registers none, so the task is woken here.
            if let Some(next) = &mut self.next
                && next.as_mut().poll(context).is_ready()
            {
                context.waker().wake_by_ref();
            }
        }
        due
    }
}
