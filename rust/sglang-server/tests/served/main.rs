//! A running server, seen over its sockets and through the scheduler's handle.

mod common;
mod crowd;
mod ending;
mod frames;
mod half_closed;
mod health;
mod hostile;
mod http;
mod http2;
mod leaving;
mod lifecycle;
mod panics;
mod text;
mod tokenizing;
