//! HTTP connections: listen, accept, answer by a router, and close each connection in order.
//!
//! This crate separates hyper from the routes. hyper's code is generic over the byte stream and the
//! service, so it is compiled in the crate that knows both. That crate is this one, so an edit of a
//! route does not compile hyper's code again.
//!
//! Invariant: an error on a connection ends only that connection. No generic function is public.

mod connection;
mod listener;
mod serve;

use axum::http::HeaderValue;

pub use listener::{ListenError, listen};
pub use serve::{CLOSE_GRACE, Settings, serve};

/// The content type of server-sent events. A response of this type can carry comments, which probe
/// whether its client still reads.
pub const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
