//! An HTTP frontend between clients and a scheduler that knows only tokens.
//!
//! A request comes in over HTTP (`api`) and becomes a typed message (`message`). The stage
//! `to_scheduler` tokenizes and checks it, and puts it as a frame ([`wire`]) into a ring
//! (`channel`). The scheduler's frames come back through `from_scheduler` to the shard that
//! has the request (`detokenizer`), which decodes the tokens into text for the HTTP answer.
//!
//! Invariant: every admitted request ends exactly once: with an answer, with an error, or,
//! when its client disconnects, with an abort that reaches the scheduler.
//!
//! # The scheduler's side
//!
//! A program that embeds the server takes requests from it and pushes tokens to it:
//!
//! ```
//! # use std::{io::{Read as _, Write as _}, net::TcpStream, thread, time::Duration};
//! use serde_json::{Value, json};
//! use sglang_server::{
//!     Server,
//!     config::{FrontendConfig, ModelConfig, ServerArgs},
//!     wire,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A context of 1024 tokens and, without a tokenizer's path, one token for each byte.
//! let args = ServerArgs::of_model("bytes", ModelConfig::of_text(1024, 300));
//! let server = Server::start(args, FrontendConfig::default(), 0, &[])?;
//! # let address = server.address();
//! # let client = thread::spawn(move || -> std::io::Result<String> {
//! #     let body = r#"{"text": "hi"}"#;
//! #     let head = "POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
//! #     let mut stream = TcpStream::connect(address)?;
//! #     write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len())?;
//! #     let mut answer = String::new();
//! #     stream.read_to_string(&mut answer)?;
//! #     Ok(answer)
//! # });
//!
//! // A client posts `{"text": "hi"}` to `/generate`.
//! assert!(server.wait(Duration::from_secs(20)));
//! let request = &server.take(1)[0];
//! let fields: Vec<Value> = rmp_serde::from_slice(&request.header)?;
//! assert_eq!("TokenizedGenerateReqInput", fields[0]);
//!
//! // The scheduler answers with one token. The columns are request ids, finish reasons, numbers
//! // of prompt tokens, and numbers of new tokens.
//! let columns = json!([[fields[1]], [{"type": "length", "length": 1}], [2], [1]]);
//! let header = rmp_serde::to_vec(&columns)?;
//! let frame = wire::batch_frame(&header, &[&i32::from(b'!').to_le_bytes()])?;
//! assert!(server.push_blocking(frame));
//! # assert!(client.join().unwrap()?.contains(r#""text":"!""#));
//! # Ok(())
//! # }
//! ```

mod api;
mod channel;
pub mod config;
mod cores;
mod detokenizer;
mod drain;
mod error;
mod from_scheduler;
mod frontend;
mod ids;
mod live;
pub mod logging;
mod message;
#[cfg(feature = "python")]
pub mod python;
mod runtime;
mod stage;
mod to_scheduler;
pub mod tokenizer;
pub mod wire;
mod workers;

pub use channel::ToScheduler;
pub use runtime::{Server, StartError};

/// Internals for this crate's integration tests, which can use only public items. Not part of
/// the API: it changes without notice.
#[doc(hidden)]
pub mod testing {
    pub use crate::{
        detokenizer::{DecodeOptions, Decoder, StopFinder, Stops, decode_one},
        message::{BatchLimit, GenerateBody},
    };
}
