//! The request names in use, and the sinks that take the answers to the clients.
//!
//! Invariant: a name is in use from the admission of its request until the sink of the
//! answer is dropped, however the request ends.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::mpsc;

use crate::{ids::Rid, message::ResponseEvent};

/// Places in a sink that are reserved for the last event.
const LAST: usize = 1;

/// The names in use, and the requests of each name.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveNames(Arc<Mutex<HashMap<String, Vec<Rid>>>>);

/// The reservation of one name. The `n` generations of one prompt share it.
#[derive(Clone, Debug)]
pub(crate) struct LiveName(Arc<Held>);

#[derive(Debug)]
struct Held {
    names: LiveNames,
    name: String,
}

impl LiveNames {
    /// Reserves `name`. Returns `None` when it is in use.
    #[must_use]
    pub(crate) fn take(&self, name: &str) -> Option<LiveName> {
        let name = name.to_owned();
        match self.locked().entry(name.clone()) {
            Entry::Vacant(place) => place.insert(Vec::new()),
            Entry::Occupied(_) => return None,
        };
        let names = self.clone();
        Some(LiveName(Arc::new(Held { names, name })))
    }

    /// The requests that have `name`; without a name, all requests.
    #[must_use]
    pub(crate) fn rids(&self, name: Option<&str>) -> Vec<Rid> {
        let names = self.locked();
        match name {
            Some(name) => names.get(name).cloned().unwrap_or_default(),
            None => names.values().flatten().cloned().collect(),
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Rid>>> {
        // A map is valid between any two calls, so a poisoned lock does no harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveName {
    /// Adds a request to those that have this name.
    pub(crate) fn add(&self, rid: Rid) {
        let Held { names, name } = self.0.as_ref();
        if let Some(rids) = names.locked().get_mut(name) {
            rids.push(rid);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.names.locked().remove(&self.name);
    }
}

/// The sending end of the answer to one request. Dropping it frees the request's name.
///
/// One place is reserved for the last event. So a slow reader still gets the last event when
/// the rest of the sink is full.
#[derive(Debug)]
pub(crate) struct Sink {
    events: mpsc::Sender<ResponseEvent>,
    name: Option<LiveName>,
}

/// Why a sink did not take an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinkError {
    /// The reader is too slow: the sink is full.
    Full,
    /// The reader has dropped its end.
    Closed,
}

impl Sink {
    /// Makes a sink and its reading end. It holds up to `capacity` unread events and the last
    /// event.
    #[must_use]
    pub(crate) fn new(
        capacity: usize,
        name: Option<LiveName>,
    ) -> (Self, mpsc::Receiver<ResponseEvent>) {
        let (events, reader) = mpsc::channel(capacity + LAST);
        (Self { events, name }, reader)
    }

    /// Whether the reader has dropped its end.
    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    /// Sends an event without waiting.
    ///
    /// # Errors
    ///
    /// When the sink is full or its reader is gone.
    pub(crate) fn send(&self, event: ResponseEvent) -> Result<(), SinkError> {
        // This is the only sender, so the free capacity does not shrink before the send.
        if !event.is_last() && self.events.capacity() <= LAST && !self.events.is_closed() {
            return Err(SinkError::Full);
        }
        try_send(&self.events, event)
    }

    /// Sends the last event. The name is free before the reader sees the event.
    ///
    /// # Errors
    ///
    /// When the reader is gone.
    pub(crate) fn end(self, last: ResponseEvent) -> Result<(), SinkError> {
        drop(self.name);
        try_send(&self.events, last)
    }
}

fn try_send(events: &mpsc::Sender<ResponseEvent>, event: ResponseEvent) -> Result<(), SinkError> {
    events.try_send(event).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => SinkError::Full,
        mpsc::error::TrySendError::Closed(_) => SinkError::Closed,
    })
}

#[cfg(test)]
mod tests {
    use super::{LiveNames, Sink, SinkError};
    use crate::{
        error::RequestError,
        message::{Chunk, ResponseEvent},
    };

    #[test]
    fn a_name_is_in_use_until_its_sink_is_dropped() {
        let names = LiveNames::default();
        let held = names.take("x").unwrap();
        assert!(names.take("x").is_none());
        assert!(names.take("y").is_some());
        let (sink, reader) = Sink::new(1, Some(held));
        drop(reader);
        assert!(names.take("x").is_none());
        assert_eq!(1, names.locked().len());
        drop(sink);
        assert!(names.take("x").is_some());
        assert_eq!(0, names.locked().len());
    }

    #[test]
    fn the_name_is_free_when_the_last_event_arrives() {
        let names = LiveNames::default();
        for _ in 0..1000 {
            let (sink, mut reader) = Sink::new(1, Some(names.take("x").unwrap()));
            let ending = std::thread::spawn(move || sink.end(failed()));
            assert_eq!(Some(failed()), reader.blocking_recv());
            assert_eq!(0, names.locked().len());
            assert_eq!(Ok(()), ending.join().unwrap());
        }
    }

    fn chunk() -> ResponseEvent {
        ResponseEvent::Chunk(Chunk::default())
    }

    fn failed() -> ResponseEvent {
        ResponseEvent::Failed(RequestError::shutting_down())
    }

    #[test]
    fn a_full_sink_and_a_closed_sink_give_different_errors() {
        let (sink, reader) = Sink::new(1, None);
        assert_eq!(Ok(()), sink.send(chunk()));
        assert_eq!(Err(SinkError::Full), sink.send(chunk()));
        drop(reader);
        assert_eq!(Err(SinkError::Closed), sink.send(chunk()));
        assert_eq!(Err(SinkError::Closed), sink.send(failed()));
    }

    #[test]
    fn a_full_sink_takes_the_last_event() {
        let (sink, mut reader) = Sink::new(1, None);
        assert_eq!(Ok(()), sink.send(chunk()));
        assert_eq!(Err(SinkError::Full), sink.send(chunk()));
        assert_eq!(Ok(()), sink.send(failed()));
        assert_eq!(Err(SinkError::Full), sink.send(failed()));
        drop(sink);
        assert_eq!(Some(chunk()), reader.blocking_recv());
        assert_eq!(Some(failed()), reader.blocking_recv());
        assert_eq!(None, reader.blocking_recv());
    }
}
