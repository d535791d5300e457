//! Many more clients than the queues have room for, and many that disconnect. Afterwards the
//! process has no more descriptors and threads than before.
//!
//! These tests count descriptors and threads of the whole process. nextest runs each test in its
//! own process.

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
use sglang_server::{Server, config::FrontendConfig, wire};

use crate::common::{
    Answer, Received, args, eventually, finish, metric, nothing_received, post, read_answer,
    receive, send, send_generate, wait_until_idle,
};
use crate::long_runs::amount;

/// Number of open file descriptors of the process.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Maximum number of clients: each needs two descriptors (client and server side), and 200 are
/// left for other uses.
fn max_clients() -> usize {
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

/// Sends a frame with one token for each request, and its finish reason, if it has one.
fn step_of_all(server: &Server, requests: &[(&str, Option<Value>)]) {
    let (rids, finish): (Vec<_>, Vec<_>) = requests.iter().cloned().unzip();
    let ones = vec![1; rids.len()];
    let header = rmp_serde::to_vec(&(rids, finish, &ones, &ones)).unwrap();
    let ids = 65_i32.to_le_bytes().repeat(requests.len());
    assert!(server.push_blocking(wire::batch_frame(&header, &[&ids]).unwrap()));
}

/// A scheduler that decodes up to `running` requests at a time, one token per step. A step takes a
/// few milliseconds, as on a GPU.
struct SlowScheduler {
    running: usize,
    requests: VecDeque<(String, u64)>,
}

impl SlowScheduler {
    const TOKENS: u64 = 4;
    const STEP: Duration = Duration::from_millis(2);

    fn step(&mut self, server: &Server) {
        for message in server.take(self.running - self.requests.len()) {
            let message = Received::new(&message);
            match message.tag.as_str() {
                "TokenizedGenerateReqInput" => self.requests.push_back((message.rid, 0)),
                "AbortReq" => self.requests.retain(|(rid, _)| *rid != message.rid),
                other => panic!("unexpected message {other}"),
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

/// Runs `clients` while a [`SlowScheduler`] serves them.
fn with_slow_scheduler<T>(server: &Server, running: usize, clients: impl FnOnce() -> T) -> T {
    let (done, stop) = flume::bounded::<()>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            let requests = VecDeque::new();
            let mut slow = SlowScheduler { running, requests };
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

/// Sends `count` requests, and then reads all answers.
fn ask_at_once(address: SocketAddr, count: usize) -> Vec<Answer> {
    let ask = |index: usize| {
        let mut body = json!({"stream": index % 2 == 1});
        // A third of them must be tokenized first.
        match index % 3 {
            0 => body["text"] = json!("some words"),
            _ => body["input_ids"] = json!([1, 2, 3]),
        }
        send(address, "POST", "/generate", &body.to_string())
    };
    let mut clients: Vec<TcpStream> = (0..count).map(ask).collect();
    clients.iter_mut().map(read_answer).collect()
}

/// Whether the answer is complete. Otherwise it must be a 503 with `Retry-After`.
fn is_complete(answer: &Answer) -> bool {
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

/// 128 requests run at a time, and 96 fit into the queue.
#[test]
fn each_of_thousands_of_requests_gets_an_answer() {
    let clients = amount(4000, 100_000);
    let config = FrontendConfig {
        to_scheduler_cap: 96,
        from_scheduler_cap: 16,
        stage_cap: 64,
        ..FrontendConfig::default()
    };
    let server = Server::start(args(), config, 0, &[]).unwrap();
    let before = descriptors();
    let (mut complete, mut refused) = (0, 0);
    with_slow_scheduler(&server, 128, || {
        while complete + refused < clients {
            let wave = max_clients().min(clients - complete - refused);
            for answer in ask_at_once(server.address(), wave) {
                *(if is_complete(&answer) {
                    &mut complete
                } else {
                    &mut refused
                }) += 1;
            }
        }
    });
    assert_eq!(clients, complete + refused);
    assert!(
        complete >= 96 && refused > 0,
        "{complete} complete, {refused} refused"
    );
    assert_eq!(0, metric(&server, "sglang_requests_live"));
    assert_eq!(
        refused as u64,
        metric(&server, "sglang_requests_refused_total")
    );
    assert_eq!(0, metric(&server, "sglang_requests_aborted_total"));
    eventually("the descriptors are closed", || descriptors() <= before);
    assert!(server.take(1).is_empty());
}

/// Captures the log of the process at level INFO.
fn capture_log() -> Arc<Mutex<Vec<u8>>> {
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

/// The rids of the next `count` messages, all of which must be aborts.
fn receive_aborts(server: &Server, count: usize) -> Vec<String> {
    let aborts = (0..count).map(|_| receive(server));
    aborts
        .map(|abort| {
            assert_eq!("AbortReq", abort.tag);
            abort.rid
        })
        .collect()
}

/// Each disconnect gives one abort. The length of the log does not depend on their number.
#[test]
fn disconnects_in_mid_stream_leave_nothing_behind() {
    const CLIENTS: usize = 500;
    let log = capture_log();
    let server = Server::start(args(), FrontendConfig::default(), 0, &[]).unwrap();
    let (descriptors_before, threads_before) = (descriptors(), threads());
    for round in 1..=amount(2, 40) as u64 {
        let ask = |_| BufReader::new(send_generate(&server, json!({"stream": true})));
        let mut clients: Vec<_> = (0..CLIENTS).map(ask).collect();
        let mut rids: Vec<String> = (0..CLIENTS).map(|_| receive(&server).rid).collect();
        let steps: Vec<_> = rids.iter().map(|rid| (rid.as_str(), None)).collect();
        step_of_all(&server, &steps);
        for client in &mut clients {
            let seen = |line: io::Result<String>| line.unwrap().starts_with("data: ");
            assert!(client.lines().any(seen), "an event");
        }
        drop(clients);
        let mut aborted = receive_aborts(&server, CLIENTS);
        wait_until_idle(&server);
        // Late frames for the aborted requests.
        step_of_all(&server, &steps);
        eventually("the frames are read", || {
            metric(&server, "sglang_scheduler_frames_total") == 2 * round
        });
        drop(steps);
        rids.sort();
        aborted.sort();
        assert_eq!(rids, aborted);
        assert!(nothing_received(&server));
    }
    eventually("the descriptors are closed", || {
        descriptors() <= descriptors_before
    });
    assert_eq!(threads_before, threads());
    server.shutdown(Duration::ZERO);
    let log = String::from_utf8(log.lock().unwrap().clone()).unwrap();
    assert!(log.contains("listening"), "{log}");
    assert!(log.lines().count() <= 3, "{log}");
}

/// Answers every request with one token. Ends when no message has arrived for two seconds.
fn answer_until_quiet(server: &Server) {
    while server.wait(Duration::from_secs(2)) {
        for message in server.take(2) {
            let message = Received::new(&message);
            if message.tag == "TokenizedGenerateReqInput" {
                finish(server, &message.rid, &[65]);
            }
        }
        thread::yield_now();
    }
}

/// Many more requests than the queues have room for.
#[test]
fn every_request_is_answered_or_refused_with_retry_after() {
    let config = FrontendConfig {
        to_scheduler_cap: 8,
        stage_cap: 64,
        ..FrontendConfig::default()
    };
    let server = Arc::new(Server::start(args(), config, 0, &[]).unwrap());
    let address = server.address();
    let clients: Vec<_> = (0..16)
        .map(|_| {
            thread::spawn(move || {
                let body = json!({"input_ids": [1]});
                let ask = |_| post(address, "/generate", &body);
                (0..25).map(ask).collect::<Vec<_>>()
            })
        })
        .collect();
    let scheduler = {
        let server = Arc::clone(&server);
        thread::spawn(move || answer_until_quiet(&server))
    };
    let answers: Vec<_> = clients
        .into_iter()
        .flat_map(|client| client.join().unwrap())
        .collect();
    scheduler.join().unwrap();
    assert_eq!(400, answers.len());
    for answer in &answers {
        match answer.status {
            200 => assert_eq!("A", answer.json()["text"]),
            503 => assert!(
                answer.head.to_lowercase().contains("retry-after: "),
                "{answer:?}"
            ),
            _ => panic!("{answer:?}"),
        }
    }
    assert!(answers.iter().any(|answer| answer.status == 200));
    assert_eq!(0, metric(&server, "sglang_requests_live"));
}
