//! The thread that reads the scheduler's frames and hands each request's part to the
//! shard that has the request.
//!
//! Invariant: a frame that cannot be read fails every request that it names; nobody waits
//! for what will not come.

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

/// Reads until `stopped` is disconnected.
///
/// Each good frame counts in `activity`: the scheduler lives. A bug met on a frame counts in
/// `panics`, and the next frame is read.
pub(crate) fn run(
    frames: &flume::Receiver<Vec<u8>>,
    stopped: &flume::Receiver<()>,
    shards: &Inboxes,
    activity: &AtomicU64,
    panics: &AtomicU64,
) {
    let next = || {
        // The first is looked at first: a busy scheduler is left, too.
        flume::Selector::new()
            .recv(stopped, |_| None)
            .recv(frames, Result::ok)
            .wait()
    };
    while let Some(frame) = next() {
        let handled = catch_unwind(AssertUnwindSafe(|| handle(frame, shards, activity)));
        if handled.is_err() {
            panics.fetch_add(1, Ordering::Relaxed);
            error!("the reader of frames panicked on one");
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

/// A shard that is gone has failed all that it had.
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
