//! Clients that do not play by the rules of HTTP, or hardly.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::json;
use sglang_server::{config::FrontendConfig, runtime::Server};

use crate::common::{Echo, SOON, args, get, metric};

const LIMIT: usize = 10_000;
const PATIENCE: Duration = Duration::from_secs(1);

fn impatient() -> Echo {
    let config = FrontendConfig {
        body_limit: LIMIT,
        read_timeout: PATIENCE,
        ..FrontendConfig::default()
    };
    Echo::start(args(), config)
}

/// Sends `bytes`, and gives all that comes until the server closes.
fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // So it closes where it has not read all.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        read => drop(read.expect("the server closes")),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whoever says nothing, or not all, is left after a while.
#[test]
fn a_connection_that_says_nothing_does_not_stay() {
    let echo = impatient();
    let post = "POST /generate HTTP/1.1\r\nHost: x\r\n";
    #[rustfmt::skip]
    let cases = [
        ("nothing",              String::new(),                              ""),
        ("half a method",        "P".into(),                                 ""),
        ("half of HTTP/2",       "PRI * HTTP/2.0\r\n".into(),                ""),
        ("half a head",          post.into(),                                ""),
        ("half a body",          format!("{post}Content-Length: 9\r\n\r\n{{"), "HTTP/1.1 408 "),
        ("half a chunk",         format!("{post}Transfer-Encoding: chunked\r\n\r\n9\r\n{{"), "HTTP/1.1 408 "),
    ];
    for (name, bytes, beginning) in cases {
        let begin = Instant::now();
        let answer = raw(echo.address(), bytes.as_bytes());
        assert!(answer.starts_with(beginning), "{name}: {answer}");
        assert_eq!(beginning.is_empty(), answer.is_empty(), "{name}: {answer}");
        let took = begin.elapsed();
        assert!(took > PATIENCE / 2 && took < SOON / 2, "{name}: {took:?}");
    }
    // A beginning in pieces is a beginning.
    let mut stream = TcpStream::connect(echo.address()).unwrap();
    stream.write_all(b"P").unwrap();
    stream.write_all(b"RI").unwrap();
    std::thread::sleep(PATIENCE / 10);
    stream
        .write_all(b" * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(4, frame[3], "settings of HTTP/2");
}

/// A client that says how much will come need not send it, nor be asked to.
#[test]
fn a_body_that_is_said_to_be_too_large_is_not_waited_for() {
    let echo = impatient();
    let large = 99_999_999_999_u64;
    for expect in ["", "Expect: 100-continue\r\n"] {
        let head = format!(
            "POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{expect}Content-Length: {large}\r\n\r\n"
        );
        let answer = raw(echo.address(), head.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 413 "), "{expect}: {answer}");
    }
    // One byte decides.
    for (length, status) in [(LIMIT, 200), (LIMIT + 1, 413)] {
        let body = json!({"input_ids": [65]}).to_string();
        let body = body.clone() + &" ".repeat(length - body.len());
        let answer = crate::common::ask(echo.address(), "POST", "/generate", &body);
        assert_eq!(status, answer.status, "{length}");
    }
    let chunk = format!("3E8\r\n{}\r\n", " ".repeat(1000));
    let chunked = format!(
        "POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
        chunk.repeat(11)
    );
    let answer = raw(echo.address(), chunked.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[test]
fn what_is_no_http_ends_its_own_connection() {
    let echo = impatient();
    let headers = "X: 1\r\n".repeat(10_000);
    #[rustfmt::skip]
    let cases = [
        ("NUL in a path",    "GET /a\0b HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),      "HTTP/1.1 400 "),
        ("NUL, escaped",     "GET /a%00b HTTP/1.1\r\nConnection: close\r\n\r\n".into(), "HTTP/1.1 404 "),
        ("many headers",     format!("GET /health HTTP/1.1\r\n{headers}\r\n"),        "HTTP/1.1 431 "),
        ("a length too long", "POST /generate HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n".into(), "HTTP/1.1 400 "),
    ];
    for (name, bytes, beginning) in cases {
        let answer = raw(echo.address(), bytes.as_bytes());
        assert!(answer.starts_with(beginning), "{name}: {answer}");
    }
    let mut pipelined = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20);
    pipelined.push_str("GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answers = raw(echo.address(), pipelined.as_bytes());
    assert_eq!(20, answers.matches("HTTP/1.1 200 ").count());
    assert_eq!(1, answers.matches("HTTP/1.1 404 ").count());
    assert_eq!(200, get(echo.address(), "/health").status);
    assert_eq!(0, metric(&echo.server, "sglang_requests_total"));
}

/// Settings that no server can have are refused at start, and do not fail each request.
#[test]
fn impossible_settings_fail_the_start() {
    let default = FrontendConfig::default;
    #[rustfmt::skip]
    let cases = [
        (FrontendConfig { to_scheduler_cap: 0, ..default() },        "to_scheduler_cap is 0"),
        (FrontendConfig { from_scheduler_cap: 0, ..default() },      "from_scheduler_cap is 0"),
        (FrontendConfig { stage_cap: 0, ..default() },               "stage_channel_cap is 0"),
        (FrontendConfig { stage_cap: usize::MAX, ..default() },      "stage_channel_cap is 18446744073709551615"),
    ];
    for (config, words) in cases {
        let error = Server::start(args(), config, 0, &[]).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let mut many = args();
    many.tokenizer_worker_num = usize::MAX;
    let error = Server::start(many, default(), 0, &[]).unwrap_err();
    assert!(
        error.to_string().contains("tokenizer_worker_num"),
        "{error}"
    );
    // A deadline beyond the end of time is one that is not reached.
    let server = Server::start(args(), default(), 0, &[]).unwrap();
    let mut client = crate::common::send(
        server.address(),
        "POST",
        "/generate",
        r#"{"input_ids":[1]}"#,
    );
    let rid = crate::common::told(&server).rid;
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| server.shutdown(Duration::MAX));
        crate::common::finish(&server, &rid, &[65]);
        assert_eq!(200, crate::common::read_answer(&mut client).status);
        stopping.join().unwrap();
    });
}
