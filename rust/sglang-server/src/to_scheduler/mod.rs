//! The stage that takes requests to the scheduler. One thread validates each request, has
//! its text tokenized, checks that it fits the context, and puts it into the ring.
//!
//! The thread waits neither for the scheduler nor for a tokenizer. If the ring is full, a
//! request fails, and an abort is retried.
//!
//! Invariant: this stage passes each admitted request to the ring or to a shard that answers it, or
//! sends an error to its sink. An abort is retried while the ring is full.

mod aborts;
mod intake;
mod progress;
mod rules;

use crate::{
    error::RequestError,
    ids::Rid,
    live::Sink,
    message::{GenerateRequest, ResponseEvent},
};

pub(crate) use intake::{Intake, Resources};

/// A request from a route.
#[derive(Debug)]
pub(crate) enum Submission {
    /// A generation.
    Generate(Box<GenerateRequest>, Sink),
    /// A control message, which the scheduler answers with a control result.
    Control {
        rid: Rid,
        header: Vec<u8>,
        sink: Sink,
    },
    /// Tokens to decode into text, without a generation.
    Detokenize {
        rid: Rid,
        ids: Vec<i32>,
        skip_special_tokens: bool,
        sink: Sink,
    },
}

impl Submission {
    fn rid(&self) -> &Rid {
        match self {
            Self::Generate(request, _) => &request.rid,
            Self::Control { rid, .. } | Self::Detokenize { rid, .. } => rid,
        }
    }

    /// Ends the request with `error`, before any shard knows it.
    pub(crate) fn refuse(self, error: &RequestError) {
        let (Self::Generate(_, sink) | Self::Control { sink, .. } | Self::Detokenize { sink, .. }) =
            self;
        let _ = sink.end(ResponseEvent::Failed(error.clone()));
    }
}

/// The sending ends of the channels into this stage.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) submissions: flume::Sender<Submission>,
    /// Requests whose client disconnected or reads too slowly. Unbounded, because aborts
    /// arrive when the other channels are full.
    pub(crate) aborts: flume::Sender<Rid>,
    /// Requests to abort because of `/abort_request`. Their clients still wait for the scheduler's
    /// last frame.
    /// Unbounded, like `aborts`.
    pub(crate) cancels: flume::Sender<Rid>,
}

/// The receiving ends of the same channels.
pub(crate) struct Inlets {
    pub(crate) submissions: flume::Receiver<Submission>,
    aborts: flume::Receiver<Rid>,
    cancels: flume::Receiver<Rid>,
}

/// The channels into this stage; `capacity` submissions may wait.
pub(crate) fn entrance(capacity: usize) -> (Entrance, Inlets) {
    let (submissions, submission_inlet) = flume::bounded(capacity);
    let (aborts, abort_inlet) = flume::unbounded();
    let (cancels, cancel_inlet) = flume::unbounded();
    let entrance = Entrance {
        submissions,
        aborts,
        cancels,
    };
    let inlets = Inlets {
        submissions: submission_inlet,
        aborts: abort_inlet,
        cancels: cancel_inlet,
    };
    (entrance, inlets)
}
