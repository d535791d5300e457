//! A frontend on a port of its own, and a scheduler of a few lines behind it.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sglang_server::{
    channel::ToScheduler,
    config::{FrontendConfig, ModelConfig, ServerArgs},
    runtime::Server,
    wire,
};

/// Longer than anything here takes.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) fn args() -> ServerArgs {
    ServerArgs {
        served_model_name: "served".into(),
        detokenizer_worker_num: 2,
        max_total_num_tokens: 4096,
        version: "0".into(),
        ..ServerArgs::of_model("model", ModelConfig::of_text(1024, 300))
    }
}

/// What the scheduler was told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    /// `TokenizedGenerateReqInput`, `AbortReq`, …
    pub(crate) tag: String,
    pub(crate) rid: String,
    pub(crate) header: Vec<Value>,
    pub(crate) ids: Vec<i64>,
}

impl Told {
    pub(crate) fn new(message: &ToScheduler) -> Self {
        let header: Vec<Value> = rmp_serde::from_slice(&message.header).unwrap();
        let text = |at: usize| header[at].as_str().unwrap().to_owned();
        Self {
            tag: text(0),
            rid: text(1),
            ids: message
                .ids
                .as_chunks()
                .0
                .iter()
                .map(|bytes| i64::from_le_bytes(*bytes))
                .collect(),
            header,
        }
    }
}

/// Waits for the next message.
pub(crate) fn told(server: &Server) -> Told {
    assert!(server.wait(SOON), "nothing arrives");
    let messages = server.take(1);
    Told::new(&messages[0])
}

/// Whether nothing is there.
pub(crate) fn silent(server: &Server) -> bool {
    server.take(1).is_empty()
}

/// Sends one step of one request.
pub(crate) fn step(server: &Server, rid: &str, ids: &[i32], finish: &Value, prompt_tokens: usize) {
    let header = json!([[rid], [finish], [prompt_tokens], [ids.len()]]);
    let header = rmp_serde::to_vec(&header).unwrap();
    let ids: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let frame = wire::batch_frame(&header, &[&ids]).unwrap();
    assert!(server.push_blocking(frame));
}

pub(crate) fn finish(server: &Server, rid: &str, ids: &[i32]) {
    step(
        server,
        rid,
        ids,
        &json!({"type": "length", "length": ids.len()}),
        1,
    );
}

/// A server whose scheduler gives each prompt back, a token a step.
pub(crate) struct Echo {
    pub(crate) server: Arc<Server>,
    stop: Arc<AtomicBool>,
    scheduler: Option<JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn start(args: ServerArgs, config: FrontendConfig) -> Self {
        Self::serve(Server::start(args, config, 0, &[]).unwrap())
    }

    pub(crate) fn serve(server: Server) -> Self {
        let server = Arc::new(server);
        let stop = Arc::new(AtomicBool::new(false));
        let scheduler = {
            let (server, stop) = (Arc::clone(&server), Arc::clone(&stop));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if server.wait(Duration::from_millis(20)) {
                        for message in server.take(256) {
                            echo(&server, &Told::new(&message));
                        }
                    }
                }
            })
        };
        Self {
            server,
            stop,
            scheduler: Some(scheduler),
        }
    }

    pub(crate) fn new() -> Self {
        Self::start(args(), FrontendConfig::default())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.server.shutdown(Duration::ZERO);
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.scheduler.take().unwrap().join();
        assert!(
            ended.is_ok() || thread::panicking(),
            "the scheduler panicked"
        );
    }
}

fn echo(server: &Server, told: &Told) {
    let push = |frame| assert!(server.push_blocking(frame));
    match told.tag.as_str() {
        "TokenizedGenerateReqInput" => {
            let ids: Vec<i32> = told.ids.iter().map(|id| *id as i32).collect();
            let (last, before) = ids.split_last().unwrap();
            for id in before {
                step(server, &told.rid, &[*id], &Value::Null, ids.len());
            }
            let reason = json!({"type": "length", "length": ids.len()});
            step(server, &told.rid, &[*last], &reason, ids.len());
        }
        "GetInternalStateReq" => {
            let state = json!({"last_gen_throughput": 1.5, "api_key": "secret"});
            push(wire::control_frame(
                &told.rid,
                &rmp_serde::to_vec(&state).unwrap(),
            ));
        }
        "FlushCacheReq" => {
            let result = json!({"success": true, "message": "flushed"});
            push(wire::control_frame(
                &told.rid,
                &rmp_serde::to_vec(&result).unwrap(),
            ));
        }
        "AbortReq" => {}
        other => panic!("the scheduler does not know {other}"),
    }
}

/// An HTTP answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The data of each event.
    pub(crate) fn events(&self) -> Vec<String> {
        let events = self.body.split_terminator("\n\n");
        events
            .map(|event| event.strip_prefix("data: ").unwrap().to_owned())
            .collect()
    }
}

/// Sends a request on a connection of its own and reads the answer to its end.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
    let mut stream = send(address, method, path, body);
    read_answer(&mut stream)
}

pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> Answer {
    ask(address, "POST", path, &body.to_string())
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, "GET", path, "")
}

/// Generates, with header lines of one's own.
pub(crate) fn ask_with(address: SocketAddr, headers: &str, body: &str) -> Answer {
    ask_bytes(address, headers, body.as_bytes())
}

/// As [`ask_with`], with any bytes.
pub(crate) fn ask_bytes(address: SocketAddr, headers: &str, body: &[u8]) -> Answer {
    read_answer(&mut send_with(address, "POST", "/generate", headers, body))
}

/// Sends a request; its answer is yet to be read.
pub(crate) fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    send_with(
        address,
        method,
        path,
        "Content-Type: application/json\r\n",
        body.as_bytes(),
    )
}

fn send_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}");
    write!(stream, "{head}Content-Length: {length}\r\n\r\n").unwrap();
    stream.write_all(body).unwrap();
    stream
}

pub(crate) fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Answer {
    let text = str::from_utf8(bytes).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no HTTP: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    Answer {
        status,
        head: head.to_owned(),
        body: if chunked {
            unchunked(body)
        } else {
            body.to_owned()
        },
    }
}

/// What has arrived of a body in chunks; the last one may be cut off.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            break;
        }
        whole.push_str(&rest[..length]);
        body = rest[length..].strip_prefix("\r\n").unwrap();
    }
    whole
}

/// A gauge or counter of `/metrics`.
pub(crate) fn metric(server: &Server, name: &str) -> u64 {
    let text = get(server.address(), "/metrics").body;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap().parse().unwrap()
}

/// Looks again until `done`.
#[track_caller]
pub(crate) fn eventually(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
