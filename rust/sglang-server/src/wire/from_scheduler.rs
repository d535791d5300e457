//! Frames from the scheduler: control results, batches of decoded tokens, and errors. The first
//! byte of a frame is its kind.
//!
//! Invariant: the error for a malformed frame names the frame's requests, as far as they can be
//! decoded.

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

/// A decoded frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// The answer to a control message.
    Control {
        /// Id of the control message.
        rid: String,
        /// The answer as the scheduler encoded it.
        payload: Bytes,
    },
    /// One decode step of several requests, by request id.
    Batch(Vec<(String, Step)>),
    /// The failure of a request.
    Error {
        /// Id of the request.
        rid: String,
        /// The scheduler's message.
        message: String,
    },
}

impl Frame {
    /// Decodes a frame.
    ///
    /// # Errors
    ///
    /// When the frame breaks the format of its kind.
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
            Some((kind, _)) => Err(MalformedFrame::new(format!("unknown frame kind {kind}"))),
            None => Err(MalformedFrame::new("the frame is empty")),
        }
    }
}

/// Builds the frame of a batch from its header and its columns.
///
/// # Errors
///
/// When the header has 4 GiB or more.
///
/// # Example
///
/// One request that gets its last two tokens; `WIRE.md` lists the columns.
///
/// ```
/// use serde_json::json;
/// use sglang_server::wire;
///
/// let finish = json!({"type": "length", "length": 2});
/// let columns = json!([["request-1"], [finish], [3], [2]]);
/// let header = rmp_serde::to_vec(&columns)?;
/// let ids = [104_i32, 105].map(i32::to_le_bytes).concat();
/// let frame = wire::batch_frame(&header, &[&ids])?;
/// assert_eq!(1 + 4 + header.len() + ids.len(), frame.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn batch_frame(header: &[u8], columns: &[&[u8]]) -> Result<Vec<u8>, MalformedFrame> {
    let length = u32::try_from(header.len())
        .map_err(|_| MalformedFrame::new("the header has 4 GiB or more"))?;
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

/// Builds the frame that answers the control message `rid`.
#[must_use]
pub fn control_frame(rid: &str, payload: &[u8]) -> Vec<u8> {
    frame_of(CONTROL, &(rid, serde_bytes::Bytes::new(payload)))
}

/// Builds the frame that fails the request `rid`.
#[must_use]
pub fn error_frame(rid: &str, message: &str) -> Vec<u8> {
    frame_of(ERROR, &(rid, message))
}

fn frame_of(kind: u8, body: &impl serde::Serialize) -> Vec<u8> {
    let mut frame = vec![kind];
    rmp_serde::encode::write(&mut frame, body).expect("writing to a `Vec` does not fail");
    frame
}

/// Decodes the payload of a control result, which is a map.
///
/// # Errors
///
/// When the payload is not a map.
pub(crate) fn control_result(payload: &[u8]) -> Result<Map<String, Value>, MalformedFrame> {
    decoded(payload)
}
