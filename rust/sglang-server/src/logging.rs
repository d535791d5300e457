//! The log of a program that serves. A module that is merely imported sets nothing up.
//!
//! Invariant: nobody waits for a log that is not read; lines that find no room are counted
//! and dropped.

use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// The thread that writes the log. Dropped, it writes what is left and ends.
#[derive(Debug)]
pub struct Log(#[expect(dead_code, reason = "held until it is dropped")] WorkerGuard);

/// The log cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Neither a level nor directives.
    #[error(
        "`{0}` is no level of the log: use error, warn, info, debug or trace, or directives such as `sglang_server=debug`"
    )]
    Filter(String),
    /// Somebody was here before.
    #[error("this process has a log already")]
    Taken,
}

/// Sends events to stderr, a line each: those that `RUST_LOG` asks for, else `filter`.
///
/// # Errors
///
/// A filter that is none, or a process that has a log already.
pub fn set_up(filter: &str) -> Result<Log, LogError> {
    let asked = std::env::var(EnvFilter::DEFAULT_ENV)
        .ok()
        .filter(|asked| !asked.is_empty());
    let directives = asked.as_deref().unwrap_or(filter);
    let filter = EnvFilter::try_new(directives)
        .map_err(|_| LogError::Filter(directives.chars().take(100).collect()))?;
    let (writer, guard) = NonBlocking::new(std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(false)
        .try_init()
        .map_err(|_| LogError::Taken)?;
    Ok(Log(guard))
}
