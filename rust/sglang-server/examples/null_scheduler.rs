//! A server with a scheduler that repeats the prompt, one token per step. `ci/bench.py server` uses
//! it to measure the cost of a request without a model.
//!
//!     null_scheduler [--incremental-streaming-output]
//!
//! Prints its address on stdout, in one line, and serves until it is killed.

use std::{
    env,
    error::Error,
    io::{self, Write as _},
    time::Duration,
};

use serde::{Serialize, de::IgnoredAny};
use sglang_server::{
    Server, ToScheduler,
    config::{FrontendConfig, ModelConfig, ServerArgs},
    wire,
};

/// Maximum number of messages taken per step.
const MAX_MESSAGES: usize = 256;
/// How long an idle scheduler waits for a message before it polls again.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// A running request.
struct Running {
    rid: String,
    prompt: Vec<i32>,
    generated: usize,
    wanted: usize,
}

/// The finish reason.
#[derive(Serialize)]
struct Finish {
    r#type: &'static str,
    length: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let incremental = env::args().any(|argument| argument == "--incremental-streaming-output");
    let server = Server::start(args(incremental), FrontendConfig::default(), 0, &[])?;
    writeln!(io::stdout(), "serving on http://{}", server.address())?;
    let mut running = Vec::new();
    loop {
        if running.is_empty() {
            let _ = server.wait(IDLE_WAIT);
        }
        for message in server.take(MAX_MESSAGES) {
            receive(&message, &mut running)?;
        }
        if !running.is_empty() && !server.push_blocking(step(&mut running)?) {
            return Ok(());
        }
    }
}

/// Reads only the tag, the rid and `max_new_tokens` of a message.
fn receive(message: &ToScheduler, running: &mut Vec<Running>) -> Result<(), Box<dyn Error>> {
    let mut header = message.header.as_slice();
    rmp::decode::read_array_len(&mut header)?;
    let tag: String = rmp_serde::decode::from_read(&mut header)?;
    let rid: String = rmp_serde::decode::from_read(&mut header)?;
    match tag.as_str() {
        "AbortReq" => running.retain(|answer| answer.rid != rid),
        "TokenizedGenerateReqInput" => {
            for _ in 2..8 {
                let IgnoredAny = rmp_serde::decode::from_read(&mut header)?;
            }
            rmp::decode::read_array_len(&mut header)?;
            let wanted: Option<usize> = rmp_serde::decode::from_read(&mut header)?;
            let ids = message.ids.as_chunks().0.iter();
            let prompt: Vec<i32> = ids.map(|id| i64::from_le_bytes(*id) as i32).collect();
            running.push(Running {
                rid,
                wanted: wanted.unwrap_or(prompt.len()),
                prompt,
                generated: 0,
            });
        }
        _ => (),
    }
    Ok(())
}

/// The frame with the next token of every request. Removes requests that have ended.
fn step(running: &mut Vec<Running>) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut ids = Vec::with_capacity(4 * running.len());
    for answer in running.iter_mut() {
        let id = answer.prompt[answer.generated % answer.prompt.len()];
        ids.extend(id.to_le_bytes());
        answer.generated += 1;
    }
    let rids: Vec<&str> = running.iter().map(|answer| &*answer.rid).collect();
    let prompts: Vec<usize> = running.iter().map(|answer| answer.prompt.len()).collect();
    let finish = |answer: &Running| {
        (answer.generated >= answer.wanted).then_some(Finish {
            r#type: "length",
            length: answer.wanted,
        })
    };
    let finish: Vec<Option<Finish>> = running.iter().map(finish).collect();
    let header = rmp_serde::to_vec_named(&(&rids, &finish, &prompts, vec![1; rids.len()]))?;
    running.retain(|answer| answer.generated < answer.wanted);
    Ok(wire::batch_frame(&header, &[&ids])?)
}

fn args(incremental_streaming_output: bool) -> ServerArgs {
    ServerArgs {
        log_level: "warning".into(),
        incremental_streaming_output,
        max_total_num_tokens: 1 << 22,
        ..ServerArgs::of_model("null", ModelConfig::of_text(32_768, 262_144))
    }
}
