//! Crowds: many more clients than there is room for, and many who leave. Afterwards the
//! process is as before.
//!
//! Descriptors and threads are those of the process: each of these tests has one of its
//! own, as nextest runs them.

use std::{
    collections::VecDeque,
    fs,
    io::{self, BufRead as _, BufReader},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use sglang_server::{config::FrontendConfig, runtime::Server, wire};

use crate::common::{Answer, Told, args, eventually, metric, read_answer, send, silent, told};

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

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// A frame with one token for each request, and its end where there is one.
fn step_of_all(server: &Server, requests: &[(&str, Option<Value>)]) {
    let (rids, finish): (Vec<_>, Vec<_>) = requests.iter().cloned().unzip();
    let ones = vec![1; rids.len()];
    let header = rmp_serde::to_vec(&(rids, finish, &ones, &ones)).unwrap();
    let ids = 65_i32.to_le_bytes().repeat(requests.len());
    assert!(server.push_blocking(wire::batch_frame(&header, &[&ids]).unwrap()));
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
        let finish = |tokens| (tokens == Self::TOKENS).then(|| json!({"type": "length"}));
        let requests = self.requests.iter();
        let steps: Vec<_> = requests
            .map(|(rid, tokens)| (rid.as_str(), finish(*tokens)))
            .collect();
        step_of_all(server, &steps);
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

/// The lines of the log from now on, as a program that serves has them.
fn log() -> Arc<Mutex<Vec<u8>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let writer = Arc::clone(&lines);
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || Lines(Arc::clone(&writer)))
        .init();
    lines
}

struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Case D13, for many: each is one abort, and the log does not tell of each.
#[test]
fn who_leaves_in_mid_stream_leaves_nothing_behind() {
    const CLIENTS: usize = 500;
    let log = log();
    let server = Server::start(args(), FrontendConfig::default(), 0, &[]).unwrap();
    let (descriptors_before, threads_before) = (descriptors(), threads());
    let body = json!({"input_ids": [1], "stream": true}).to_string();
    for round in 1..=2 {
        let ask = |_| BufReader::new(send(server.address(), "POST", "/generate", &body));
        let mut clients: Vec<_> = (0..CLIENTS).map(ask).collect();
        let mut rids: Vec<String> = (0..CLIENTS).map(|_| told(&server).rid).collect();
        let steps: Vec<_> = rids.iter().map(|rid| (rid.as_str(), None)).collect();
        step_of_all(&server, &steps);
        for client in &mut clients {
            let seen = |line: io::Result<String>| line.unwrap().starts_with("data: ");
            assert!(client.lines().any(seen), "an event");
        }
        drop(clients);
        let aborts = (0..CLIENTS).map(|_| told(&server));
        let mut aborted: Vec<String> = aborts
            .map(|abort| {
                assert_eq!("AbortReq", abort.tag);
                abort.rid
            })
            .collect();
        eventually("nothing is live", || {
            metric(&server, "sglang_requests_live") == 0
        });
        // The scheduler had decoded on.
        step_of_all(&server, &steps);
        eventually("the frames are read", || {
            metric(&server, "sglang_scheduler_frames_total") == 2 * round
        });
        drop(steps);
        rids.sort();
        aborted.sort();
        assert_eq!(rids, aborted);
        assert!(silent(&server));
    }
    eventually("descriptors are given back", || {
        descriptors() <= descriptors_before
    });
    assert_eq!(threads_before, threads());
    server.shutdown(Duration::ZERO);
    let log = String::from_utf8(log.lock().unwrap().clone()).unwrap();
    assert!(log.contains("listening"), "{log}");
    assert!(log.lines().count() <= 3, "{log}");
}
