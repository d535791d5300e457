//! A server whose scheduler gives each prompt back, over and over, a token a step: what is
//! left of a request's cost when nothing is computed. For `ci/bench.py server`.
//!
//!     null_scheduler [--incremental-streaming-output]
//!
//! Says on stdout, in one line, where it listens, and serves until it is killed.

use std::{
    env,
    error::Error,
    io::{self, Write as _},
    time::Duration,
};

use serde::{Serialize, de::IgnoredAny};
use sglang_server::{
    channel::ToScheduler,
    config::{FrontendConfig, ModelConfig, ServerArgs},
    runtime::Server,
    wire,
};

/// Messages that a turn takes in at most.
const MOST: usize = 256;
/// How long an idle scheduler waits before it looks again.
const PARKED: Duration = Duration::from_secs(1);

/// A request that is being answered.
struct Answering {
    rid: String,
    prompt: Vec<i32>,
    said: usize,
    wanted: usize,
}

/// Why an answer has ended.
#[derive(Serialize)]
struct Finish {
    r#type: &'static str,
    length: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let incremental = env::args().any(|argument| argument == "--incremental-streaming-output");
    let server = Server::start(args(incremental), FrontendConfig::default(), 0, &[])?;
    writeln!(io::stdout(), "serving on http://{}", server.address())?;
    let mut answering = Vec::new();
    loop {
        if answering.is_empty() {
            let _ = server.wait(PARKED);
        }
        for message in server.take(MOST) {
            receive(&message, &mut answering)?;
        }
        if !answering.is_empty() && !server.push_blocking(step(&mut answering)?) {
            return Ok(());
        }
    }
}

/// Reads as much of a message as it needs: tag, name and the most tokens wanted.
fn receive(message: &ToScheduler, answering: &mut Vec<Answering>) -> Result<(), Box<dyn Error>> {
    let mut header = message.header.as_slice();
    rmp::decode::read_array_len(&mut header)?;
    let tag: String = rmp_serde::decode::from_read(&mut header)?;
    let rid: String = rmp_serde::decode::from_read(&mut header)?;
    match tag.as_str() {
        "AbortReq" => answering.retain(|answer| answer.rid != rid),
        "TokenizedGenerateReqInput" => {
            for _ in 2..8 {
                let IgnoredAny = rmp_serde::decode::from_read(&mut header)?;
            }
            rmp::decode::read_array_len(&mut header)?;
            let wanted: Option<usize> = rmp_serde::decode::from_read(&mut header)?;
            let ids = message.ids.as_chunks().0.iter();
            let prompt: Vec<i32> = ids.map(|id| i64::from_le_bytes(*id) as i32).collect();
            answering.push(Answering {
                rid,
                wanted: wanted.unwrap_or(prompt.len()),
                prompt,
                said: 0,
            });
        }
        _ => (),
    }
    Ok(())
}

/// The frame with the next token of every request; those that have ended leave.
fn step(answering: &mut Vec<Answering>) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut ids = Vec::with_capacity(4 * answering.len());
    for answer in answering.iter_mut() {
        let id = answer.prompt[answer.said % answer.prompt.len()];
        ids.extend(id.to_le_bytes());
        answer.said += 1;
    }
    let rids: Vec<&str> = answering.iter().map(|answer| &*answer.rid).collect();
    let prompts: Vec<usize> = answering.iter().map(|answer| answer.prompt.len()).collect();
    let finish = |answer: &Answering| {
        (answer.said >= answer.wanted).then_some(Finish {
            r#type: "length",
            length: answer.wanted,
        })
    };
    let finish: Vec<Option<Finish>> = answering.iter().map(finish).collect();
    let header = rmp_serde::to_vec_named(&(&rids, &finish, &prompts, vec![1; rids.len()]))?;
    answering.retain(|answer| answer.said < answer.wanted);
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
