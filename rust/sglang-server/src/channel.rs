//! The two rings between the frontend's threads and the scheduler's thread.
//!
//! Invariant: the frontend never waits for room in the ring to the scheduler, so a slow
//! scheduler cannot block it. The scheduler waits for room in the ring from the scheduler,
//! so a full ring loses no tokens.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A message for the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToScheduler {
    /// One MessagePack value; `WIRE.md` lists its fields.
    pub header: Vec<u8>,
    /// The prompt's tokens, each a little-endian int64. Empty for control messages.
    pub ids: Vec<u8>,
}

impl ToScheduler {
    /// A message without tokens.
    #[must_use]
    pub fn control(header: Vec<u8>) -> Self {
        let ids = Vec::new();
        Self { header, ids }
    }

    /// A message with tokens.
    #[must_use]
    pub fn with_ids(header: Vec<u8>, ids: &[i32]) -> Self {
        let ids = ids.iter().flat_map(|&id| i64::from(id).to_le_bytes());
        Self {
            header,
            ids: ids.collect(),
        }
    }
}

/// Why a ring did not take a message; gives the message back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused<T> {
    /// The ring is full.
    Full(T),
    /// The receiving end was dropped.
    Closed(T),
}

/// The frontend's end of the ring to the scheduler.
#[derive(Clone, Debug)]
pub(crate) struct ToSchedulerRing(flume::Sender<ToScheduler>);

/// The scheduler's end of the ring to the scheduler.
#[derive(Debug)]
pub(crate) struct SchedulerInbox {
    ring: flume::Receiver<ToScheduler>,
    /// Messages that [`Self::wait`] has taken out of the ring, for the next [`Self::take`].
    stash: Mutex<VecDeque<ToScheduler>>,
}

/// Makes a ring to the scheduler with room for `capacity` messages.
#[must_use]
pub(crate) fn to_scheduler(capacity: usize) -> (ToSchedulerRing, SchedulerInbox) {
    let (sender, ring) = flume::bounded(capacity);
    let stash = Mutex::default();
    (ToSchedulerRing(sender), SchedulerInbox { ring, stash })
}

impl ToSchedulerRing {
    /// Pushes a message without waiting.
    ///
    /// # Errors
    ///
    /// When the ring is full or the scheduler's end was dropped.
    pub(crate) fn push(&self, message: ToScheduler) -> Result<(), Refused<ToScheduler>> {
        self.0.try_send(message).map_err(|error| match error {
            flume::TrySendError::Full(message) => Refused::Full(message),
            flume::TrySendError::Disconnected(message) => Refused::Closed(message),
        })
    }
}

impl SchedulerInbox {
    /// Takes up to `max` messages, in order. Never waits, even while another thread is in
    /// [`Self::wait`].
    #[must_use]
    pub(crate) fn take(&self, max: usize) -> Vec<ToScheduler> {
        let mut stash = self.stash();
        let stashed = stash.len().min(max);
        let mut messages: Vec<_> = stash.drain(..stashed).collect();
        messages.extend(self.ring.try_iter().take(max - stashed));
        messages
    }

    /// Waits for a message, at most for `timeout`. Returns whether there is one.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        if !self.stash().is_empty() {
            return true;
        }
        // The lock is not held while this waits, so `take` never waits for it.
        let message = self.ring.recv_timeout(timeout).ok();
        let is_there = message.is_some();
        self.stash().extend(message);
        is_there
    }

    /// Whether the frontend's end was dropped, so that no new message will arrive.
    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        self.ring.is_disconnected()
    }

    fn stash(&self) -> MutexGuard<'_, VecDeque<ToScheduler>> {
        // A queue is valid between any two calls, so a poisoned lock does no harm.
        self.stash.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The scheduler's end of the ring from the scheduler. Its items are frames of
/// [`wire`](crate::wire).
#[derive(Clone, Debug)]
pub(crate) struct FromSchedulerRing(flume::Sender<Vec<u8>>);

/// Makes a ring from the scheduler with room for `capacity` frames.
#[must_use]
pub(crate) fn from_scheduler(capacity: usize) -> (FromSchedulerRing, flume::Receiver<Vec<u8>>) {
    let (sender, frames) = flume::bounded(capacity);
    (FromSchedulerRing(sender), frames)
}

impl FromSchedulerRing {
    /// Pushes a frame without waiting.
    ///
    /// # Errors
    ///
    /// When the ring is full or the frontend's end was dropped.
    pub(crate) fn push(&self, frame: Vec<u8>) -> Result<(), Refused<Vec<u8>>> {
        self.0.try_send(frame).map_err(|error| match error {
            flume::TrySendError::Full(frame) => Refused::Full(frame),
            flume::TrySendError::Disconnected(frame) => Refused::Closed(frame),
        })
    }

    /// Pushes a frame, and waits while the ring is full. Returns false when the frontend's
    /// end was dropped.
    #[must_use]
    pub(crate) fn push_blocking(&self, frame: Vec<u8>) -> bool {
        self.0.send(frame).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::{Refused, ToScheduler, from_scheduler, to_scheduler};

    /// Longer than any operation in these tests takes.
    const TIMEOUT: Duration = Duration::from_secs(20);

    fn message(name: u8) -> ToScheduler {
        ToScheduler::control(vec![name])
    }

    #[test]
    fn each_id_takes_eight_bytes() {
        let message = ToScheduler::with_ids(vec![7], &[1, -2]);
        let expected = [1_i64, -2].map(i64::to_le_bytes).concat();
        assert_eq!(expected, message.ids);
    }

    #[test]
    fn take_returns_the_messages_that_waits_stashed_first() {
        let (ring, inbox) = to_scheduler(8);
        for name in 0..4 {
            ring.push(message(name)).unwrap();
        }
        assert!(inbox.wait(TIMEOUT));
        assert!(inbox.wait(TIMEOUT));
        assert_eq!(Vec::<ToScheduler>::new(), inbox.take(0));
        assert_eq!(vec![message(0), message(1)], inbox.take(2));
        assert_eq!(vec![message(2), message(3)], inbox.take(256));
        assert_eq!(Vec::<ToScheduler>::new(), inbox.take(256));
        assert!(!inbox.wait(Duration::ZERO));
    }

    /// The thread that calls `take` may hold Python's interpreter lock.
    #[test]
    fn take_does_not_wait_for_a_wait() {
        let (ring, inbox) = to_scheduler(1);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| inbox.wait(TIMEOUT));
            let begin = Instant::now();
            while !waiter.is_finished() {
                // Takes while the other thread waits, then ends that wait.
                assert_eq!(Vec::<ToScheduler>::new(), inbox.take(0));
                if begin.elapsed() > Duration::from_millis(100) {
                    let _ = ring.push(message(1));
                }
            }
            assert!(begin.elapsed() < TIMEOUT / 2, "{:?}", begin.elapsed());
            assert!(waiter.join().unwrap());
        });
        assert_eq!(vec![message(1)], inbox.take(1));
    }

    #[test]
    fn a_push_ends_a_wait() {
        let (ring, inbox) = to_scheduler(1);
        let waiter = thread::spawn(move || (inbox.wait(TIMEOUT), inbox.take(1)));
        ring.push(message(1)).unwrap();
        assert_eq!((true, vec![message(1)]), waiter.join().unwrap());
    }

    #[test]
    fn a_full_or_closed_ring_gives_the_message_back() {
        let (ring, inbox) = to_scheduler(1);
        ring.push(message(1)).unwrap();
        assert_eq!(Err(Refused::Full(message(2))), ring.push(message(2)));
        assert_eq!(vec![message(1)], inbox.take(8));
        drop(inbox);
        assert_eq!(Err(Refused::Closed(message(2))), ring.push(message(2)));
    }

    #[test]
    fn a_blocking_push_waits_until_the_ring_has_room() {
        let (ring, frames) = from_scheduler(1);
        ring.push(vec![1]).unwrap();
        assert_eq!(Err(Refused::Full(vec![2])), ring.push(vec![2]));
        let pusher = thread::spawn(move || ring.push_blocking(vec![2]));
        assert_eq!(Ok(vec![1]), frames.recv_timeout(TIMEOUT));
        assert_eq!(Ok(vec![2]), frames.recv_timeout(TIMEOUT));
        assert!(pusher.join().unwrap());
    }

    #[test]
    fn a_blocking_push_returns_false_when_the_ring_closes() {
        let (ring, frames) = from_scheduler(1);
        ring.push(vec![1]).unwrap();
        let blocked = ring.clone();
        let pusher = thread::spawn(move || blocked.push_blocking(vec![2]));
        drop(frames);
        assert!(!pusher.join().unwrap());
        assert!(!ring.push_blocking(vec![3]));
        assert_eq!(Err(Refused::Closed(vec![3])), ring.push(vec![3]));
    }
}
