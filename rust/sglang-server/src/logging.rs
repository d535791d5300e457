//! The log of the program that runs the server. Only that program sets it up; importing the
//! extension module does not.
//!
//! Invariant: logging never blocks. If stderr is not read, new lines are dropped and counted.

use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// The thread that writes the log. Dropping it writes the remaining lines and ends the thread.
#[derive(Debug)]
pub struct Log(#[expect(dead_code, reason = "held until it is dropped")] WorkerGuard);

/// Why the log was not set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The filter is neither a level nor a list of directives.
    #[error(
        "`{0}` is not a log level: use error, warn, info, debug or trace, or directives such as `sglang_server=debug`"
    )]
    Filter(String),
    /// The process has a `tracing` subscriber already.
    #[error("this process already has a log")]
    Taken,
}

/// Writes events to stderr, one line each. `RUST_LOG` selects the events; if it is empty or
/// not set, `filter` does.
///
/// # Errors
///
/// When the filter cannot be parsed, or the process already has a log.
///
/// # Example
///
/// ```
/// use sglang_server::logging::{LogError, set_up};
///
/// let log = set_up("warn,sglang_server=debug")?;
/// assert_eq!(LogError::Taken, set_up("info").unwrap_err());
/// drop(log); // Writes the lines that remain.
/// # Ok::<(), LogError>(())
/// ```
pub fn set_up(filter: &str) -> Result<Log, LogError> {
    let variable = std::env::var(EnvFilter::DEFAULT_ENV)
        .ok()
        .filter(|value| !value.is_empty());
    let directives = variable.as_deref().unwrap_or(filter);
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
