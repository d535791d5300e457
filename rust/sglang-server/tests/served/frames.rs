//! Frames of a scheduler that has lost its mind: each does to the requests that it names
//! what it says, or fails them, and nothing to others; what fails while the scheduler may
//! still work on it is aborted, once.

use std::net::TcpStream;

use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use sglang_server::{
    config::FrontendConfig,
    runtime::Server,
    tokenizer::{ByteTokenizer, TextTokenizer as _},
    wire::{self, Frame},
};

use crate::common::{args, eventually, finish, metric, read_answer, send, silent, told};

/// Requests that a frame names, and all.
const NAMED: usize = 2;
const LIVE: usize = 4;

/// The token that ends what a frame has not ended.
const LAST: i32 = 'Z' as i32;

/// How an answer ends.
#[derive(Clone, Debug, PartialEq)]
enum End {
    Text(String),
    Failed(u16),
}

/// What happens to a frame on its way.
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

/// Good frames of each kind, by name. The first request goes on, the second ends.
fn good_frames(rids: &[String]) -> Vec<(&'static str, Vec<u8>)> {
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
    // Lengths of log-probabilities, of their alternatives, and of hidden states.
    let mut all = core();
    all.extend([json!([1, 1]), json!([1, 0])]);
    all.extend([json!([1, 1]), json!([2, 2]), json!([1, 0]), json!([1])]);
    all.extend([json!([]), json!([]), json!([]), json!([])]);
    all.extend([json!([1, 0]), json!([2])]);
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

/// What must become of `rids` after `frame` and a last token for each, and which of them
/// the scheduler is told to give up.
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

/// A request that asks for everything that a frame may carry.
fn ask(server: &Server) -> (TcpStream, String) {
    let body = json!({"input_ids": [1], "return_logprob": true, "top_logprobs_num": 2,
        "return_hidden_states": true});
    let client = send(server.address(), "POST", "/generate", &body.to_string());
    let request = told(server);
    assert_eq!("TokenizedGenerateReqInput", request.tag);
    (client, request.rid)
}

fn server() -> Server {
    let mut args = args();
    args.enable_return_hidden_states = true;
    Server::start(args, FrontendConfig::default(), 0, &[]).unwrap()
}

/// Sends what `frame` makes of the names of live requests, and then their ends. Each
/// request must end as it says.
fn survive(server: &Server, frame: impl FnOnce(&[String]) -> Vec<u8>) {
    let (clients, rids): (Vec<_>, Vec<_>) = (0..LIVE).map(|_| ask(server)).unzip();
    let frame = frame(&rids);
    let (expected, mut aborts) = expected(&frame, &rids);
    assert!(server.push_blocking(frame));
    for rid in &rids {
        finish(server, rid, &[LAST]);
    }
    let end = |mut client| {
        let answer = read_answer(&mut client);
        // JSON also where numbers are none.
        let whole = answer.json();
        match whole["text"].as_str() {
            Some(text) if answer.status == 200 => End::Text(text.to_owned()),
            _ => End::Failed(answer.status),
        }
    };
    let ends: Vec<End> = clients.into_iter().map(end).collect();
    assert_eq!(expected, ends);
    assert_eq!(vec![End::Text("Z".into()); LIVE - NAMED], ends[NAMED..]);
    let mut told: Vec<String> = aborts.iter().map(|_| told(server).rid).collect();
    aborts.sort();
    told.sort();
    assert_eq!(aborts, told);
    assert!(silent(server));
}

fn is_well(server: &Server) {
    let (mut client, rid) = ask(server);
    finish(server, &rid, &[65]);
    assert_eq!("A", read_answer(&mut client).json()["text"]);
    eventually("nothing is live", || {
        metric(server, "sglang_requests_live") == 0
    });
    assert!(silent(server));
    assert_eq!(0, metric(server, "sglang_panics_total"));
}

#[test]
fn good_frames_do_what_they_say() {
    let server = server();
    #[rustfmt::skip]
    let cases = [
        ("batch",             ["AZ", "B"].map(|text| End::Text(text.into())), 0),
        ("batch with extras", ["AZ", "B"].map(|text| End::Text(text.into())), 0),
        ("control",           [End::Failed(500), End::Text("Z".into())],      1),
        ("error",             [End::Failed(500), End::Text("Z".into())],      1),
    ];
    for (at, (name, ends, aborts)) in cases.into_iter().enumerate() {
        survive(&server, |rids| {
            let (kind, frame) = good_frames(rids).swap_remove(at);
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
    is_well(&server);
}

#[test]
fn damaged_frames_hurt_nobody_else() {
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
            survive(&server, |rids| {
                let mut frame = good_frames(rids).swap_remove(kind).1;
                for damage in &damage {
                    damage.apply(&mut frame);
                }
                frame
            });
        }
        is_well(&server);
        Ok(())
    });
    survived.unwrap();
}

/// Makes a frame of a request's name.
type Make<'a> = &'a dyn Fn(&str) -> Vec<u8>;

/// Lengths and depths that no frame can have: nothing is reserved for them, no stack ends.
#[test]
fn frames_that_promise_too_much_are_refused() {
    let server = server();
    let batch = |header: &[u8]| wire::batch_frame(header, &[]).unwrap();
    let rid_column = |rid: &str| [&[0x91, 0xD9, rid.len() as u8], rid.as_bytes()].concat();
    #[rustfmt::skip]
    let cases: [(&str, Make); 6] = [
        ("names without end",     &|_| batch(&[0x94, 0xDD, 0xFF, 0xFF, 0xFF, 0xFF])),
        ("a name of 4 GiB",       &|_| batch(&[0x94, 0x91, 0xDB, 0xFF, 0xFF, 0xFF, 0xFF])),
        ("columns without end",   &|rid| batch(&[vec![0xDD, 0xFF, 0xFF, 0xFF, 0xFF], rid_column(rid)].concat())),
        ("reasons without end",   &|rid| batch(&[vec![0x94], rid_column(rid), vec![0xDD, 0xFF, 0xFF, 0xFF, 0xFF]].concat())),
        ("a reason without end",  &|rid| batch(&[vec![0x94], rid_column(rid), vec![0x91, 0x81, 0xA1, b'a'], vec![0x91; 100_000]].concat())),
        ("a payload of 4 GiB",    &|rid| [&[1, 0x92, 0xD9, rid.len() as u8], rid.as_bytes(), &[0xC6, 0xFF, 0xFF, 0xFF, 0xFF]].concat()),
    ];
    for (name, make) in cases {
        survive(&server, |rids| {
            let frame = make(&rids[0]);
            assert!(Frame::read(&frame.clone().into()).is_err(), "{name}");
            frame
        });
    }
    // Within a payload, too.
    let deep = [vec![0x81, 0xA1, b'a'], vec![0x91; 100_000]].concat();
    for path in ["/flush_cache", "/server_info"] {
        let method = if path == "/server_info" {
            "GET"
        } else {
            "POST"
        };
        let mut client = send(server.address(), method, path, "");
        let control = wire::control_frame(&told(&server).rid, &deep);
        assert!(server.push_blocking(control));
        let answer = read_answer(&mut client);
        assert_eq!(500, answer.status, "{answer:?}");
        assert!(answer.body.contains("depth limit exceeded"), "{answer:?}");
    }
    is_well(&server);
}
