//! The stage that reads the scheduler's frames and sends each request's part to the shard
//! that has the request.
//!
//! Invariant: a malformed frame fails every request that it names, so no client waits for an
//! answer that cannot arrive.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use tracing::{error, warn};

use crate::{
    detokenizer::{Event, Inboxes},
    error::RequestError,
    ids::Rid,
    wire::{Frame, MalformedFrame},
};

/// Reads frames until `stopped` is disconnected.
///
/// `activity` counts the well-formed frames, which show that the scheduler works. `panics`
/// counts the panics that were caught; each loses one frame.
pub(crate) fn run(
    frames: &flume::Receiver<Vec<u8>>,
    stopped: &flume::Receiver<()>,
    shards: &Inboxes,
    activity: &AtomicU64,
    panics: &AtomicU64,
) {
    let next = || {
        // `stopped` comes first: a scheduler that never pauses must not keep the thread alive.
        flume::Selector::new()
            .recv(stopped, |_| None)
            .recv(frames, Result::ok)
            .wait()
    };
    while let Some(frame) = next() {
        let handled = catch_unwind(AssertUnwindSafe(|| handle(frame, shards, activity)));
        if handled.is_err() {
            panics.fetch_add(1, Ordering::Relaxed);
            error!("the from-scheduler thread panicked on a frame");
        }
    }
}

fn handle(frame: Vec<u8>, shards: &Inboxes, activity: &AtomicU64) {
    match Frame::read(&Bytes::from(frame)) {
        Ok(frame) => {
            activity.fetch_add(1, Ordering::Relaxed);
            dispatch(frame, shards);
        }
        Err(MalformedFrame { reason, rids }) => {
            warn!(
                requests = rids.len(),
                "the scheduler sent a malformed frame: {reason}"
            );
            let failure = RequestError::Codec(format!("malformed frame: {reason}"));
            for rid in rids {
                fail(rid, failure.clone(), shards);
            }
        }
    }
}

/// Send errors are ignored: a shard that has ended has already failed all its requests.
fn dispatch(frame: Frame, shards: &Inboxes) {
    match frame {
        Frame::Control { rid, payload } => {
            let rid = Rid::whole(rid);
            let _ = shards.send(&rid, Event::Control(rid.clone(), payload));
        }
        Frame::Batch(steps) => drop(shards.send_steps(steps)),
        Frame::Error { rid, message } => fail(rid, RequestError::Internal(message), shards),
    }
}

fn fail(rid: String, error: RequestError, shards: &Inboxes) {
    let rid = Rid::whole(rid);
    let _ = shards.send(&rid, Event::Fail(rid.clone(), error));
}
