//! Tests of a running server, over its sockets and through the scheduler's handle.

mod aborts;
mod common;
mod disconnects;
mod frames;
mod half_closed;
mod health;
mod hostile;
mod http;
mod http2;
mod load;
#[path = "../../../test-support/long_runs.rs"]
mod long_runs;
mod panics;
mod scheduler_errors;
mod shutdown;
mod startup;
mod text;
mod tokenizing;
