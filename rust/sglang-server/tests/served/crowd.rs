//! Crowds: many more clients than there is room for, and many who leave. Afterwards the
//! process is as before.
//!
//! Descriptors and threads are those of the process: each of these tests has one of its
//! own, as nextest runs them.

use std::{
    collections::VecDeque,
    fs,
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use sglang_server::{config::FrontendConfig, runtime::Server, wire};

use crate::common::{Answer, Told, args, eventually, metric, read_answer, send};

/// What the process has open.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// As many clients as there are descriptors for: one on each side, and some for others.
fn most_at_once() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let limit = line.unwrap().split_whitespace().nth(3).unwrap();
    let limit = limit.parse().unwrap_or(usize::MAX);
    (limit.saturating_sub(200) / 2).max(1)
}

/// Decodes for up to `running` requests at a time, a token each step; a step takes time,
/// as it does on a device.
struct Slow {
    running: usize,
    requests: VecDeque<(String, u64)>,
}

impl Slow {
    const TOKENS: u64 = 4;
    const STEP: Duration = Duration::from_millis(2);

    fn step(&mut self, server: &Server) {
        for message in server.take(self.running - self.requests.len()) {
            let told = Told::new(&message);
            match told.tag.as_str() {
                "TokenizedGenerateReqInput" => self.requests.push_back((told.rid, 0)),
                "AbortReq" => self.requests.retain(|(rid, _)| *rid != told.rid),
                other => panic!("nobody asked for {other}"),
            }
        }
        if self.requests.is_empty() {
            return;
        }
        thread::sleep(Self::STEP);
        for (_, tokens) in &mut self.requests {
            *tokens += 1;
        }
        let each = |column: &dyn Fn(&(String, u64)) -> Value| -> Value {
            self.requests.iter().map(column).collect()
        };
        let finish = |tokens| (tokens == Self::TOKENS).then(|| json!({"type": "length"}));
        let columns = json!([
            each(&|(rid, _)| json!(rid)),
            each(&|(_, tokens)| json!(finish(*tokens))),
            each(&|_| json!(1)),
            each(&|_| json!(1)),
        ]);
        let header = rmp_serde::to_vec(&columns).unwrap();
        let ids = 65_i32.to_le_bytes().repeat(self.requests.len());
        assert!(server.push_blocking(wire::batch_frame(&header, &[&ids]).unwrap()));
        self.requests.retain(|(_, tokens)| *tokens < Self::TOKENS);
    }
}

/// Runs `clients` while a scheduler that decodes for `running` requests serves them.
fn with_slow_scheduler<T>(server: &Server, running: usize, clients: impl FnOnce() -> T) -> T {
    let (done, stop) = flume::bounded::<()>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            let requests = VecDeque::new();
            let mut slow = Slow { running, requests };
            while stop.try_recv() == Err(flume::TryRecvError::Empty) {
                if !slow.requests.is_empty() || server.wait(Duration::from_millis(10)) {
                    slow.step(server);
                }
            }
        });
        let answers = clients();
        drop(done);
        answers
    })
}

/// Connects `count` clients, who all have asked before the first of them reads.
fn ask_at_once(address: SocketAddr, count: usize) -> Vec<Answer> {
    let ask = |index: usize| {
        let mut body = json!({"stream": index % 2 == 1});
        // Some have to be tokenized first.
        match index % 3 {
            0 => body["text"] = json!("some words"),
            _ => body["input_ids"] = json!([1, 2, 3]),
        }
        send(address, "POST", "/generate", &body.to_string())
    };
    let mut clients: Vec<TcpStream> = (0..count).map(ask).collect();
    clients.iter_mut().map(read_answer).collect()
}

/// An answer that is good to its end, or says when to come again. Which it is.
fn is_good(answer: &Answer) -> bool {
    let head = answer.head.to_lowercase();
    match answer.status {
        200 if head.contains("text/event-stream") => {
            let events = answer.events();
            let [.., last, done] = events.as_slice() else {
                panic!("{answer:?}");
            };
            let last: Value = serde_json::from_str(last).unwrap();
            assert_eq!(
                ("[DONE]", "AAAA"),
                (done.as_str(), last["text"].as_str().unwrap())
            );
            true
        }
        200 => {
            assert_eq!("AAAA", answer.json()["text"], "{answer:?}");
            true
        }
        503 => {
            assert!(head.contains("retry-after: 1"), "{answer:?}");
            assert_eq!(503, answer.json()["error"]["code"], "{answer:?}");
            false
        }
        _ => panic!("{answer:?}"),
    }
}

/// Case D15: 128 run, 96 wait, and 4,000 ask.
#[test]
fn every_one_of_4000_gets_an_answer() {
    const CLIENTS: usize = 4000;
    let config = FrontendConfig {
        to_scheduler_cap: 96,
        from_scheduler_cap: 16,
        stage_cap: 64,
        ..FrontendConfig::default()
    };
    let server = Server::start(args(), config, 0, &[]).unwrap();
    let before = descriptors();
    let (mut good, mut refused) = (0, 0);
    with_slow_scheduler(&server, 128, || {
        while good + refused < CLIENTS {
            let wave = most_at_once().min(CLIENTS - good - refused);
            for answer in ask_at_once(server.address(), wave) {
                *(if is_good(&answer) {
                    &mut good
                } else {
                    &mut refused
                }) += 1;
            }
        }
    });
    assert_eq!(CLIENTS, good + refused);
    assert!(good >= 96 && refused > 0, "{good} good, {refused} refused");
    assert_eq!(0, metric(&server, "sglang_requests_live"));
    assert_eq!(
        refused as u64,
        metric(&server, "sglang_requests_refused_total")
    );
    assert_eq!(0, metric(&server, "sglang_requests_aborted_total"));
    eventually("descriptors are given back", || descriptors() <= before);
    assert!(server.take(1).is_empty());
}
