//! The two rings between the frontend's threads and the one thread of the scheduler.
//!
//! Invariant: the frontend never waits for room in the ring to the scheduler, so a slow
//! scheduler cannot stop it; the scheduler waits for room in the ring from it, since what
//! it has computed must not be lost.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A message for the scheduler: its header, and its tokens as little-endian int64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToScheduler {
    /// One MessagePack value.
    pub header: Vec<u8>,
    /// Eight bytes a token; none for control messages.
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

/// Why a ring did not take a message; the message comes back.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused<T> {
    /// No room.
    Full(T),
    /// Nobody will ever take it out.
    Closed(T),
}

/// The frontend's end of the ring to the scheduler.
#[derive(Clone, Debug)]
pub struct ToSchedulerRing(flume::Sender<ToScheduler>);

/// The scheduler's end of it.
#[derive(Debug)]
pub struct SchedulerInbox {
    ring: flume::Receiver<ToScheduler>,
    /// What waits have taken out, for the next [`Self::take`].
    stash: Mutex<VecDeque<ToScheduler>>,
}

/// A ring to the scheduler with room for `capacity` messages.
#[must_use]
pub fn to_scheduler(capacity: usize) -> (ToSchedulerRing, SchedulerInbox) {
    let (sender, ring) = flume::bounded(capacity);
    let stash = Mutex::default();
    (ToSchedulerRing(sender), SchedulerInbox { ring, stash })
}

impl ToSchedulerRing {
    /// Puts a message in, if there is room.
    ///
    /// # Errors
    ///
    /// When there is none, or the scheduler is gone.
    pub fn push(&self, message: ToScheduler) -> Result<(), Refused<ToScheduler>> {
        self.0.try_send(message).map_err(|error| match error {
            flume::TrySendError::Full(message) => Refused::Full(message),
            flume::TrySendError::Disconnected(message) => Refused::Closed(message),
        })
    }

    /// Messages in the ring.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl SchedulerInbox {
    /// Up to `most` messages that are there, in order. Never waits, not even for a
    /// [`Self::wait`] in another thread.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<ToScheduler> {
        let mut stash = self.stash();
        let stashed = stash.len().min(most);
        let mut messages: Vec<_> = stash.drain(..stashed).collect();
        messages.extend(self.ring.try_iter().take(most - stashed));
        messages
    }

    /// Waits until there is a message, at most for `timeout`; says whether there is one.
    pub fn wait(&self, timeout: Duration) -> bool {
        if !self.stash().is_empty() {
            return true;
        }
        // Without the lock, which is held by nobody for long.
        let message = self.ring.recv_timeout(timeout).ok();
        let there = message.is_some();
        self.stash().extend(message);
        there
    }

    /// Whether no message will come any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ring.is_disconnected()
    }

    fn stash(&self) -> MutexGuard<'_, VecDeque<ToScheduler>> {
        // A queue is whole between any two of its calls.
        self.stash.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The scheduler's end of the ring back; frames are as [`wire`](crate::wire) reads them.
#[derive(Clone, Debug)]
pub struct FromSchedulerRing(flume::Sender<Vec<u8>>);

/// A ring back with room for `capacity` frames, and its reading end.
#[must_use]
pub fn from_scheduler(capacity: usize) -> (FromSchedulerRing, flume::Receiver<Vec<u8>>) {
    let (sender, frames) = flume::bounded(capacity);
    (FromSchedulerRing(sender), frames)
}

impl FromSchedulerRing {
    /// Puts a frame in, if there is room.
    ///
    /// # Errors
    ///
    /// When there is none, or nobody reads any more.
    pub fn push(&self, frame: Vec<u8>) -> Result<(), Refused<Vec<u8>>> {
        self.0.try_send(frame).map_err(|error| match error {
            flume::TrySendError::Full(frame) => Refused::Full(frame),
            flume::TrySendError::Disconnected(frame) => Refused::Closed(frame),
        })
    }

    /// Puts a frame in as soon as there is room. False when nobody reads any more.
    #[must_use]
    pub fn push_blocking(&self, frame: Vec<u8>) -> bool {
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

    const SOON: Duration = Duration::from_secs(20);

    fn message(name: u8) -> ToScheduler {
        ToScheduler::control(vec![name])
    }

    #[test]
    fn ids_are_eight_bytes_each() {
        let message = ToScheduler::with_ids(vec![7], &[1, -2]);
        let expected = [1_i64, -2].map(i64::to_le_bytes).concat();
        assert_eq!(expected, message.ids);
    }

    #[test]
    fn wait_stashes_then_take_returns_it() {
        let (ring, inbox) = to_scheduler(8);
        for name in 0..4 {
            ring.push(message(name)).unwrap();
        }
        assert!(inbox.wait(SOON));
        assert!(inbox.wait(SOON));
        assert_eq!(Vec::<ToScheduler>::new(), inbox.take(0));
        assert_eq!(vec![message(0), message(1)], inbox.take(2));
        assert_eq!(vec![message(2), message(3)], inbox.take(256));
        assert_eq!(Vec::<ToScheduler>::new(), inbox.take(256));
        assert!(!inbox.wait(Duration::ZERO));
    }

    /// A thread that waits keeps no other from looking: it may hold the interpreter.
    #[test]
    fn take_does_not_wait_for_a_wait() {
        let (ring, inbox) = to_scheduler(1);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| inbox.wait(SOON));
            let begin = Instant::now();
            while !waiter.is_finished() {
                // Looks while the other waits, and then ends the wait.
                assert_eq!(Vec::<ToScheduler>::new(), inbox.take(0));
                if begin.elapsed() > Duration::from_millis(100) {
                    let _ = ring.push(message(1));
                }
            }
            assert!(begin.elapsed() < SOON / 2, "{:?}", begin.elapsed());
            assert!(waiter.join().unwrap());
        });
        assert_eq!(vec![message(1)], inbox.take(1));
    }

    #[test]
    fn wait_wakes_on_push() {
        let (ring, inbox) = to_scheduler(1);
        let waiter = thread::spawn(move || (inbox.wait(SOON), inbox.take(1)));
        ring.push(message(1)).unwrap();
        assert_eq!((true, vec![message(1)]), waiter.join().unwrap());
    }

    #[test]
    fn a_full_ring_gives_the_message_back() {
        let (ring, inbox) = to_scheduler(1);
        ring.push(message(1)).unwrap();
        assert_eq!(Err(Refused::Full(message(2))), ring.push(message(2)));
        assert_eq!(1, ring.len());
        drop(inbox);
        assert_eq!(Err(Refused::Closed(message(2))), ring.push(message(2)));
    }

    #[test]
    fn response_push_blocks_until_drained() {
        let (ring, frames) = from_scheduler(1);
        ring.push(vec![1]).unwrap();
        assert_eq!(Err(Refused::Full(vec![2])), ring.push(vec![2]));
        let pusher = thread::spawn(move || ring.push_blocking(vec![2]));
        assert_eq!(Ok(vec![1]), frames.recv_timeout(SOON));
        assert_eq!(Ok(vec![2]), frames.recv_timeout(SOON));
        assert!(pusher.join().unwrap());
    }

    #[test]
    fn response_push_returns_false_when_closed() {
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
