//! Aborts on their way to the scheduler.
//!
//! Invariant: a request is in the queue at most once, so repeated aborts of one request do
//! not fill memory while the scheduler takes nothing.

use std::collections::{HashSet, VecDeque};

use tracing::debug;

use crate::{
    channel::{Refused, ToScheduler, ToSchedulerRing},
    ids::Rid,
    wire,
};

/// Aborts that the ring has not taken yet, oldest first.
#[derive(Debug, Default)]
pub(super) struct AbortQueue {
    order: VecDeque<Rid>,
    queued: HashSet<Rid>,
}

impl AbortQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds an abort of `rid`, unless one is in the queue.
    pub(super) fn add(&mut self, rid: Rid) {
        if self.queued.insert(rid.clone()) {
            self.order.push_back(rid);
        }
    }

    /// Moves aborts into `ring` until it is full.
    pub(super) fn flush(&mut self, ring: &ToSchedulerRing) {
        while let Some(rid) = self.order.front() {
            match ring.push(ToScheduler::control(wire::abort(rid))) {
                Err(Refused::Full(_)) => return,
                Ok(()) => debug!(%rid, "aborted"),
                // The scheduler is gone, so nothing works on the request.
                Err(Refused::Closed(_)) => (),
            }
            self.queued.remove(rid);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AbortQueue;
    use crate::{channel, ids::Rid};

    fn rid(name: &str) -> Rid {
        Rid::whole(name.into())
    }

    #[test]
    fn aborts_wait_for_room_in_order_and_once_each() {
        let (ring, inbox) = channel::to_scheduler(1);
        let mut queue = AbortQueue::default();
        for name in ["a", "b", "a"] {
            queue.add(rid(name));
        }
        let mut taken = Vec::new();
        while !queue.is_empty() {
            queue.flush(&ring);
            taken.extend(inbox.take(8));
        }
        let expected = ["a", "b"].map(|name| crate::wire::abort(&rid(name)));
        let headers: Vec<_> = taken.into_iter().map(|message| message.header).collect();
        assert_eq!(expected, headers[..]);
    }

    #[test]
    fn a_request_can_be_aborted_again_after_its_abort_was_taken() {
        let (ring, inbox) = channel::to_scheduler(8);
        let mut queue = AbortQueue::default();
        for _ in 0..2 {
            queue.add(rid("a"));
            queue.flush(&ring);
        }
        assert_eq!(2, inbox.take(8).len());
    }

    #[test]
    fn a_closed_ring_empties_the_queue() {
        let (ring, inbox) = channel::to_scheduler(1);
        drop(inbox);
        let mut queue = AbortQueue::default();
        queue.add(rid("a"));
        queue.flush(&ring);
        assert!(queue.is_empty());
    }
}
