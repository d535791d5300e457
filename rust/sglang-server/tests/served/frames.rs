//! Corrupt frames from the scheduler. A frame affects only the requests that it names: they get its
//! steps, or they fail. A request that fails while the scheduler may still be working on it is
//! aborted once.

use std::net::TcpStream;

use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use sglang_server::{
    Server,
    config::FrontendConfig,
    tokenizer::{ByteTokenizer, TextTokenizer as _},
    wire::{self, Frame},
};

use crate::common::{
    args, finish, metric, nothing_received, read_answer, receive, send, send_generate,
    wait_until_idle,
};

/// Number of requests that a frame names.
const NAMED: usize = 2;
/// Number of live requests.
const LIVE: usize = 4;

/// The last token of requests that the frame under test does not end.
const LAST: i32 = 'Z' as i32;

/// How an answer ends.
#[derive(Clone, Debug, PartialEq)]
enum End {
    Text(String),
    Failed(u16),
}

/// A corruption of a frame.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Set(Index, u8),
    Cut(Index),
    Extend(Vec<u8>),
    Repeat(Index),
}

impl Damage {
    fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            6 => (any::<Index>(), 0..8u8).prop_map(|(at, bit)| Self::Flip(at, bit)),
            3 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Self::Set(at, byte)),
            1 => any::<Index>().prop_map(Self::Cut),
            1 => prop::collection::vec(any::<u8>(), 1..9).prop_map(Self::Extend),
            1 => any::<Index>().prop_map(Self::Repeat),
        ]
    }

    fn apply(&self, frame: &mut Vec<u8>) {
        if frame.is_empty() {
            return;
        }
        match self {
            Self::Flip(at, bit) => *at.get_mut(frame) ^= 1 << bit,
            Self::Set(at, byte) => *at.get_mut(frame) = *byte,
            Self::Cut(at) => frame.truncate(at.index(frame.len())),
            Self::Extend(bytes) => frame.extend(bytes),
            Self::Repeat(at) => frame.extend_from_within(at.index(frame.len())..),
        }
    }
}

/// The columns of log-probabilities, of alternative tokens, and of hidden states.
fn extras_columns() -> Vec<Value> {
    #[rustfmt::skip]
    let columns = [
        json!([1, 1]), json!([1, 0]),
        json!([1, 1]), json!([2, 2]), json!([1, 0]), json!([1]),
        json!([]), json!([]), json!([]), json!([]),
        json!([1, 0]), json!([2]),
    ];
    columns.to_vec()
}

/// A valid frame of each kind, with its name. The first request continues, the second ends.
fn valid_frames(rids: &[String]) -> Vec<(&'static str, Vec<u8>)> {
    let [first, second, ..] = rids else {
        unreachable!()
    };
    let core = || {
        vec![
            json!([first, second]),
            json!([null, {"type": "length", "length": 1}]),
            json!([1, 1]),
            json!([1, 1]),
        ]
    };
    let batch = |columns: Vec<Value>, data: &[u32]| {
        let header = rmp_serde::to_vec(&columns).unwrap();
        let data: Vec<u8> = data
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        wire::batch_frame(&header, &[&data]).unwrap()
    };
    let all = [core(), extras_columns()].concat();
    let half = 0.5_f32.to_bits();
    #[rustfmt::skip]
    let data = [
        65, 66,
        half, half, 65, 66,
        half, 1,
        half, half, half, half, 65, 66, 67, 68,
        half, 1,
        half, half,
    ];
    vec![
        ("batch", batch(core(), &[65, 66])),
        ("batch with extras", batch(all, &data)),
        ("control", wire::control_frame(first, b"\x81\xa1k\xc0")),
        ("error", wire::error_frame(first, "cannot go on")),
    ]
}

/// How each request must end after `frame` and a last token for each, and the requests that must
/// be aborted.
fn expected(frame: &[u8], rids: &[String]) -> (Vec<End>, Vec<String>) {
    let mut ids: Vec<Vec<i32>> = vec![Vec::new(); rids.len()];
    let mut ends: Vec<Option<End>> = vec![None; rids.len()];
    let mut aborts = Vec::new();
    let text = |ids: &[i32]| End::Text(ByteTokenizer::default().decode(ids, true).unwrap());
    let index = |name: &String| rids.iter().position(|rid| rid == name);
    let (failed, steps) = match Frame::read(&frame.to_vec().into()) {
        Err(malformed) => (malformed.rids, Vec::new()),
        Ok(Frame::Error { rid, .. } | Frame::Control { rid, .. }) => (vec![rid], Vec::new()),
        Ok(Frame::Batch(steps)) => (Vec::new(), steps),
    };
    for index in failed.iter().filter_map(index) {
        if ends[index].is_none() {
            ends[index] = Some(End::Failed(500));
            aborts.push(rids[index].clone());
        }
    }
    for (name, step) in steps {
        let Some(index) = index(&name).filter(|index| ends[*index].is_none()) else {
            continue;
        };
        ids[index].extend(step.output_ids);
        ends[index] = step.finish.map(|finish| {
            let status = finish.abort_status();
            status.map_or_else(|| text(&ids[index]), End::Failed)
        });
    }
    let ends = ends.into_iter().zip(ids).map(|(end, mut ids)| {
        ids.push(LAST);
        end.unwrap_or_else(|| text(&ids))
    });
    (ends.collect(), aborts)
}

/// Sends a request with all options that affect frames. Returns the connection and its rid.
fn start_request(server: &Server) -> (TcpStream, String) {
    let body = json!({"input_ids": [1], "return_logprob": true, "top_logprobs_num": 2,
        "return_hidden_states": true});
    let client = send_generate(server, body);
    let request = receive(server);
    assert_eq!("TokenizedGenerateReqInput", request.tag);
    (client, request.rid)
}

fn server() -> Server {
    let mut args = args();
    args.enable_return_hidden_states = true;
    Server::start(args, FrontendConfig::default(), 0, &[]).unwrap()
}

/// Sends the frame that `frame` builds from the rids of live requests, and then a last token for
/// each. Checks how the requests end, and which ones are aborted.
fn check_frame(server: &Server, frame: impl FnOnce(&[String]) -> Vec<u8>) {
    let (clients, rids): (Vec<_>, Vec<_>) = (0..LIVE).map(|_| start_request(server)).unzip();
    let frame = frame(&rids);
    let (expected, mut aborts) = expected(&frame, &rids);
    assert!(server.push_blocking(frame));
    for rid in &rids {
        finish(server, rid, &[LAST]);
    }
    let end = |mut client| {
        let answer = read_answer(&mut client);
        // Must be valid JSON, even if the frame contains NaN.
        let whole = answer.json();
        match whole["text"].as_str() {
            Some(text) if answer.status == 200 => End::Text(text.to_owned()),
            _ => End::Failed(answer.status),
        }
    };
    let ends: Vec<End> = clients.into_iter().map(end).collect();
    assert_eq!(expected, ends);
    assert_eq!(vec![End::Text("Z".into()); LIVE - NAMED], ends[NAMED..]);
    let mut received: Vec<String> = aborts.iter().map(|_| receive(server).rid).collect();
    aborts.sort();
    received.sort();
    assert_eq!(aborts, received);
    assert!(nothing_received(server));
}

/// Checks that the server still answers, is idle, and has counted no panic.
fn check_healthy(server: &Server) {
    let (mut client, rid) = start_request(server);
    finish(server, &rid, &[65]);
    assert_eq!("A", read_answer(&mut client).json()["text"]);
    wait_until_idle(server);
    assert!(nothing_received(server));
    assert_eq!(0, metric(server, "sglang_panics_total"));
}

#[test]
fn valid_frames_are_applied() {
    let server = server();
    #[rustfmt::skip]
    let cases = [
        ("batch",             ["AZ", "B"].map(|text| End::Text(text.into())), 0),
        ("batch with extras", ["AZ", "B"].map(|text| End::Text(text.into())), 0),
        ("control",           [End::Failed(500), End::Text("Z".into())],      1),
        ("error",             [End::Failed(500), End::Text("Z".into())],      1),
    ];
    for (at, (name, ends, aborts)) in cases.into_iter().enumerate() {
        check_frame(&server, |rids| {
            let (kind, frame) = valid_frames(rids).swap_remove(at);
            assert_eq!(name, kind);
            let expected = expected(&frame, rids);
            assert_eq!(
                (&ends[..], aborts),
                (&expected.0[..NAMED], expected.1.len()),
                "{name}"
            );
            frame
        });
    }
    check_healthy(&server);
}

#[test]
fn corrupt_frames_affect_only_the_requests_that_they_name() {
    let damaged = (0..4_usize, prop::collection::vec(Damage::any(), 1..4));
    let config = Config {
        cases: 16,
        failure_persistence: None,
        ..Config::default()
    };
    let frames = prop::collection::vec(damaged, 32);
    let survived = TestRunner::new(config).run(&frames, |frames| {
        let server = server();
        for (kind, damage) in frames {
            check_frame(&server, |rids| {
                let mut frame = valid_frames(rids).swap_remove(kind).1;
                for damage in &damage {
                    damage.apply(&mut frame);
                }
                frame
            });
        }
        check_healthy(&server);
        Ok(())
    });
    survived.unwrap();
}

/// Builds a frame from a rid.
type Make<'a> = &'a dyn Fn(&str) -> Vec<u8>;

/// No memory is allocated for impossible lengths, and deep nesting does not overflow the stack.
#[test]
fn frames_with_impossible_lengths_or_depths_are_refused() {
    let server = server();
    let batch = |header: &[u8]| wire::batch_frame(header, &[]).unwrap();
    let rid_column = |rid: &str| [&[0x91, 0xD9, rid.len() as u8], rid.as_bytes()].concat();
    #[rustfmt::skip]
    let cases: [(&str, Make); 6] = [
        ("endless rid column",          &|_| batch(&[0x94, 0xDD, 0xFF, 0xFF, 0xFF, 0xFF])),
        ("rid of 4 GiB",                &|_| batch(&[0x94, 0x91, 0xDB, 0xFF, 0xFF, 0xFF, 0xFF])),
        ("endless list of columns",     &|rid| batch(&[vec![0xDD, 0xFF, 0xFF, 0xFF, 0xFF], rid_column(rid)].concat())),
        ("endless finish reasons",      &|rid| batch(&[vec![0x94], rid_column(rid), vec![0xDD, 0xFF, 0xFF, 0xFF, 0xFF]].concat())),
        ("deeply nested finish reason", &|rid| batch(&[vec![0x94], rid_column(rid), vec![0x91, 0x81, 0xA1, b'a'], vec![0x91; 100_000]].concat())),
        ("payload of 4 GiB",            &|rid| [&[1, 0x92, 0xD9, rid.len() as u8], rid.as_bytes(), &[0xC6, 0xFF, 0xFF, 0xFF, 0xFF]].concat()),
    ];
    for (name, make) in cases {
        check_frame(&server, |rids| {
            let frame = make(&rids[0]);
            assert!(Frame::read(&frame.clone().into()).is_err(), "{name}");
            frame
        });
    }
    // Deep nesting within a control payload.
    let deep = [vec![0x81, 0xA1, b'a'], vec![0x91; 100_000]].concat();
    for path in ["/flush_cache", "/server_info"] {
        let method = if path == "/server_info" {
            "GET"
        } else {
            "POST"
        };
        let mut client = send(server.address(), method, path, "");
        let control = wire::control_frame(&receive(&server).rid, &deep);
        assert!(server.push_blocking(control));
        let answer = read_answer(&mut client);
        assert_eq!(500, answer.status, "{answer:?}");
        assert!(answer.body.contains("depth limit exceeded"), "{answer:?}");
    }
    check_healthy(&server);
}
