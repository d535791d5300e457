//! Which names clients use right now.
//!
//! Invariant: a name is taken from the moment a request with it is admitted until the
//! sink of its answer is dropped, by whichever path.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::mpsc;

use crate::{ids::Rid, message::ResponseEvent};

/// Places that only the last event may take.
const LAST: usize = 1;

/// The names in use, and the requests that have each.
#[derive(Clone, Debug, Default)]
pub struct LiveNames(Arc<Mutex<HashMap<String, Vec<Rid>>>>);

/// The hold on one name, which the requests of one prompt share.
#[derive(Clone, Debug)]
pub struct LiveName(Arc<Held>);

#[derive(Debug)]
struct Held {
    names: LiveNames,
    name: String,
}

impl LiveNames {
    /// Takes `name`, unless somebody has it.
    #[must_use]
    pub fn take(&self, name: &str) -> Option<LiveName> {
        let name = name.to_owned();
        match self.locked().entry(name.clone()) {
            Entry::Vacant(place) => place.insert(Vec::new()),
            Entry::Occupied(_) => return None,
        };
        let names = self.clone();
        Some(LiveName(Arc::new(Held { names, name })))
    }

    /// The requests that have `name`, or any.
    #[must_use]
    pub fn rids(&self, name: Option<&str>) -> Vec<Rid> {
        let names = self.locked();
        match name {
            Some(name) => names.get(name).cloned().unwrap_or_default(),
            None => names.values().flatten().cloned().collect(),
        }
    }

    /// How many are in use.
    #[must_use]
    pub fn count(&self) -> usize {
        self.locked().len()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Rid>>> {
        // A map is whole between any two of its calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveName {
    /// `rid` has this name, too.
    pub fn add(&self, rid: Rid) {
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

/// Where the answer to one request goes. Its name is free again when this is dropped.
///
/// One place is kept for the last event, so that even a reader who is too slow learns how
/// its answer ended.
#[derive(Debug)]
pub struct Sink {
    events: mpsc::Sender<ResponseEvent>,
    name: Option<LiveName>,
}

/// The reader is too slow, or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkError {
    /// As many events wait as may.
    Full,
    /// Nobody reads any more.
    Closed,
}

impl Sink {
    /// A sink for up to `capacity` unread events and the last one, and its reading end.
    #[must_use]
    pub fn new(capacity: usize, name: Option<LiveName>) -> (Self, mpsc::Receiver<ResponseEvent>) {
        let (events, reader) = mpsc::channel(capacity + LAST);
        (Self { events, name }, reader)
    }

    /// Whether nobody reads any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    /// Sends without waiting.
    ///
    /// # Errors
    ///
    /// When the reader is too slow or gone.
    pub fn send(&self, event: ResponseEvent) -> Result<(), SinkError> {
        // Nobody else sends: what is free now does not get less before the next line.
        if !event.is_last() && self.events.capacity() <= LAST && !self.events.is_closed() {
            return Err(SinkError::Full);
        }
        try_send(&self.events, event)
    }

    /// Sends the last event. Whoever reads it finds the name free.
    ///
    /// # Errors
    ///
    /// When nobody reads any more.
    pub fn end(self, last: ResponseEvent) -> Result<(), SinkError> {
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
    fn a_name_is_taken_until_its_sink_is_gone() {
        let names = LiveNames::default();
        let held = names.take("x").unwrap();
        assert!(names.take("x").is_none());
        assert!(names.take("y").is_some());
        let (sink, reader) = Sink::new(1, Some(held));
        drop(reader);
        assert!(names.take("x").is_none());
        assert_eq!(1, names.count());
        drop(sink);
        assert!(names.take("x").is_some());
        assert_eq!(0, names.count());
    }

    #[test]
    fn who_reads_the_end_finds_the_name_free() {
        let names = LiveNames::default();
        for _ in 0..1000 {
            let (sink, mut reader) = Sink::new(1, Some(names.take("x").unwrap()));
            let ending = std::thread::spawn(move || sink.end(failed()));
            assert_eq!(Some(failed()), reader.blocking_recv());
            assert_eq!(0, names.count());
            assert_eq!(Ok(()), ending.join().unwrap());
        }
    }

    fn chunk() -> ResponseEvent {
        ResponseEvent::Chunk(Chunk::default())
    }

    fn failed() -> ResponseEvent {
        ResponseEvent::Failed(RequestError::Disconnected)
    }

    #[test]
    fn full_and_closed_are_told_apart() {
        let (sink, reader) = Sink::new(1, None);
        assert_eq!(Ok(()), sink.send(chunk()));
        assert_eq!(Err(SinkError::Full), sink.send(chunk()));
        drop(reader);
        assert_eq!(Err(SinkError::Closed), sink.send(chunk()));
        assert_eq!(Err(SinkError::Closed), sink.send(failed()));
    }

    #[test]
    fn the_end_has_a_place_of_its_own() {
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
