//! What the scheduler says: results of control messages, batches of decoded tokens,
//! errors. A first byte tells which.
//!
//! Invariant: a malformed frame still names its requests, as far as it can be read at all.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{
    batch,
    decode::{MalformedFrame, decoded},
};
use crate::message::Step;

const CONTROL: u8 = 1;
const BATCH: u8 = 2;
const ERROR: u8 = 3;

/// A frame, read.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// The answer to a control message.
    Control {
        /// Whose.
        rid: String,
        /// As the scheduler encoded it.
        payload: Bytes,
    },
    /// One step of several requests.
    Batch(Vec<(String, Step)>),
    /// A request that failed.
    Error {
        /// Which.
        rid: String,
        /// The scheduler's words.
        message: String,
    },
}

impl Frame {
    /// Reads a frame.
    ///
    /// # Errors
    ///
    /// When any of it is not as its kind demands.
    pub fn read(frame: &Bytes) -> Result<Self, MalformedFrame> {
        match frame.split_first() {
            Some((&CONTROL, body)) => {
                let (rid, payload): (String, serde_bytes::ByteBuf) = decoded(body)?;
                let payload = Bytes::from(payload.into_vec());
                Ok(Self::Control { rid, payload })
            }
            Some((&BATCH, body)) => batch::read(body).map(Self::Batch),
            Some((&ERROR, body)) => {
                let (rid, message) = decoded(body)?;
                Ok(Self::Error { rid, message })
            }
            Some((kind, _)) => Err(MalformedFrame::new(format!("no frame has kind {kind}"))),
            None => Err(MalformedFrame::new("it is empty")),
        }
    }
}

/// The frame of a batch. Puts its header and its columns together.
///
/// # Errors
///
/// A header of 4 GiB or more.
pub fn batch_frame(header: &[u8], columns: &[&[u8]]) -> Result<Vec<u8>, MalformedFrame> {
    let length = u32::try_from(header.len())
        .map_err(|_| MalformedFrame::new("its header is 4 GiB or more"))?;
    let data: usize = columns.iter().map(|column| column.len()).sum();
    let mut frame = Vec::with_capacity(5 + header.len() + data);
    frame.push(BATCH);
    frame.extend(length.to_le_bytes());
    frame.extend(header);
    for column in columns {
        frame.extend(*column);
    }
    Ok(frame)
}

/// The answer to the control message `rid`.
#[must_use]
pub fn control_frame(rid: &str, payload: &[u8]) -> Vec<u8> {
    frame_of(CONTROL, &(rid, serde_bytes::Bytes::new(payload)))
}

/// The failure of the request `rid`.
#[must_use]
pub fn error_frame(rid: &str, message: &str) -> Vec<u8> {
    frame_of(ERROR, &(rid, message))
}

fn frame_of(kind: u8, body: &impl serde::Serialize) -> Vec<u8> {
    let mut frame = vec![kind];
    rmp_serde::encode::write(&mut frame, body).expect("buffers grow");
    frame
}

/// The map that the scheduler answers a control message with.
///
/// # Errors
///
/// When the payload is something else.
pub(crate) fn control_result(payload: &[u8]) -> Result<Map<String, Value>, MalformedFrame> {
    decoded(payload)
}
