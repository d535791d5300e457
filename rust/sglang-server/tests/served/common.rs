//! Helpers: start a server, act as its scheduler, and send HTTP requests.

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
    Server, ToScheduler,
    config::{FrontendConfig, ModelConfig, ServerArgs},
    wire,
};

/// Much longer than any step of these tests takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn args() -> ServerArgs {
    ServerArgs {
        served_model_name: "served".into(),
        detokenizer_worker_num: 2,
        max_total_num_tokens: 4096,
        version: "0".into(),
        ..ServerArgs::of_model("model", ModelConfig::of_text(1024, 300))
    }
}

/// A message to the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Received {
    /// `TokenizedGenerateReqInput`, `AbortReq`, …
    pub(crate) tag: String,
    pub(crate) rid: String,
    pub(crate) header: Vec<Value>,
    pub(crate) ids: Vec<i64>,
}

impl Received {
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

/// A server with default settings, on a free port.
pub(crate) fn start_server() -> Server {
    Server::start(args(), FrontendConfig::default(), 0, &[]).unwrap()
}

/// Waits for the next message to the scheduler.
pub(crate) fn receive(server: &Server) -> Received {
    assert!(server.wait(TIMEOUT), "no message for the scheduler");
    let messages = server.take(1);
    Received::new(&messages[0])
}

/// Waits for the next message, which must abort `rid`.
#[track_caller]
pub(crate) fn expect_abort(server: &Server, rid: &str) {
    let message = receive(server);
    assert_eq!(
        ("AbortReq", rid),
        (message.tag.as_str(), message.rid.as_str())
    );
}

/// Whether no message for the scheduler is queued.
pub(crate) fn nothing_received(server: &Server) -> bool {
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

/// Sends the last step of one request.
pub(crate) fn finish(server: &Server, rid: &str, ids: &[i32]) {
    step(
        server,
        rid,
        ids,
        &json!({"type": "length", "length": ids.len()}),
        1,
    );
}

/// A server with a scheduler that answers with the prompt, one token per step.
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
                            echo(&server, &Received::new(&message));
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

fn echo(server: &Server, message: &Received) {
    let push = |frame| assert!(server.push_blocking(frame));
    match message.tag.as_str() {
        "TokenizedGenerateReqInput" => {
            let ids: Vec<i32> = message.ids.iter().map(|id| *id as i32).collect();
            let (last, before) = ids.split_last().unwrap();
            for id in before {
                step(server, &message.rid, &[*id], &Value::Null, ids.len());
            }
            let reason = json!({"type": "length", "length": ids.len()});
            step(server, &message.rid, &[*last], &reason, ids.len());
        }
        "GetInternalStateReq" => {
            let state = json!({"last_gen_throughput": 1.5, "api_key": "secret"});
            push(wire::control_frame(
                &message.rid,
                &rmp_serde::to_vec(&state).unwrap(),
            ));
        }
        "FlushCacheReq" => {
            let result = json!({"success": true, "message": "flushed"});
            push(wire::control_frame(
                &message.rid,
                &rmp_serde::to_vec(&result).unwrap(),
            ));
        }
        "AbortReq" => {}
        other => panic!("unexpected message {other}"),
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

    /// The data of each server-sent event.
    pub(crate) fn events(&self) -> Vec<String> {
        let events = self.body.split_terminator("\n\n");
        events
            .map(|event| event.strip_prefix("data: ").unwrap().to_owned())
            .collect()
    }
}

/// Sends a request on a new connection, and reads the whole answer.
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

/// Sends `POST /generate` with these header lines.
pub(crate) fn ask_with(address: SocketAddr, headers: &str, body: &str) -> Answer {
    ask_bytes(address, headers, body.as_bytes())
}

/// As [`ask_with`], with a body of any bytes.
pub(crate) fn ask_bytes(address: SocketAddr, headers: &str, body: &[u8]) -> Answer {
    read_answer(&mut send_with(address, "POST", "/generate", headers, body))
}

/// Sends `POST /generate` without reading the answer. The prompt is three tokens, unless `body` has
/// one.
pub(crate) fn send_generate(server: &Server, mut body: Value) -> TcpStream {
    if body["input_ids"].is_null() && body["text"].is_null() {
        body["input_ids"] = json!([1, 2, 3]);
    }
    send(server.address(), "POST", "/generate", &body.to_string())
}

/// Sends a request without reading the answer.
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
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
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
        .unwrap_or_else(|| panic!("not HTTP: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    Answer {
        status,
        head: head.to_owned(),
        body: if chunked {
            decode_chunked(body)
        } else {
            body.to_owned()
        },
    }
}

/// Decodes a chunked body. The last chunk may be missing.
fn decode_chunked(mut body: &str) -> String {
    let mut decoded = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            break;
        }
        decoded.push_str(&rest[..length]);
        body = rest[length..].strip_prefix("\r\n").unwrap();
    }
    decoded
}

/// The value of a gauge or counter of `/metrics`.
pub(crate) fn metric(server: &Server, name: &str) -> u64 {
    let text = get(server.address(), "/metrics").body;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap().parse().unwrap()
}

/// Waits until no request is live.
#[track_caller]
pub(crate) fn wait_until_idle(server: &Server) {
    eventually("no request is live", || {
        metric(server, "sglang_requests_live") == 0
    });
}

/// Polls until `done`.
#[track_caller]
pub(crate) fn eventually(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < end, "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
