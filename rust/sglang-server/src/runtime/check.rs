//! Checks of the arguments before a server starts.

use std::io;

use serde_json::Map;

use crate::{
    config::{FrontendConfig, ServerArgs},
    error::RequestError,
    message::SamplingParams,
    tokenizer::LoadError,
};

/// Upper limit for a queue's capacity: the items of a larger queue would not fit in memory.
const MAX_CAPACITY: usize = 1 << 24;

/// Upper limit for the number of tokenizer threads and of detokenizer threads.
const MAX_THREADS: usize = 1024;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An argument is invalid.
    #[error("invalid server_args: {0}")]
    Args(String),
    /// A queue's capacity is 0 or above the limit.
    #[error("invalid capacity: {0} is {1}; it must be from 1 to {MAX_CAPACITY}")]
    Capacity(&'static str, usize),
    /// The server cannot listen on the address.
    #[error("{0}")]
    Listen(String),
    /// The tokenizer cannot be loaded.
    #[error("runtime start failed: {0}")]
    Tokenizer(#[from] LoadError),
    /// The system refused a thread or a socket.
    #[error("runtime start failed: {0}")]
    System(#[from] io::Error),
}

/// Checks the arguments that would otherwise make requests fail later.
pub(super) fn check_args(args: &ServerArgs) -> Result<(), StartError> {
    if args.served_model_name.is_empty() {
        return Err(StartError::Args("`served_model_name` is empty".into()));
    }
    if args.tokenizer_worker_num.max(args.detokenizer_worker_num) > MAX_THREADS {
        let message = format!(
            "`tokenizer_worker_num` and `detokenizer_worker_num` may be {MAX_THREADS} at most"
        );
        return Err(StartError::Args(message));
    }
    let preferred = args.preferred_sampling_params.clone().unwrap_or_default();
    match SamplingParams::from_json(preferred, &Map::new(), "preferred_sampling_params") {
        Ok(_) => Ok(()),
        Err(RequestError::Invalid { message, .. }) => Err(StartError::Args(message)),
        Err(other) => Err(StartError::Args(other.to_string())),
    }
}

/// Checks that each queue has a capacity that can be allocated.
pub(super) fn check_capacities(config: &FrontendConfig) -> Result<(), StartError> {
    let queues = [
        ("to_scheduler_cap", config.to_scheduler_cap),
        ("from_scheduler_cap", config.from_scheduler_cap),
        ("stage_channel_cap", config.stage_cap),
    ];
    match queues
        .into_iter()
        .find(|(_, capacity)| !(1..=MAX_CAPACITY).contains(capacity))
    {
        Some((name, capacity)) => Err(StartError::Capacity(name, capacity)),
        None => Ok(()),
    }
}
