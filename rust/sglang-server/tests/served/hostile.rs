//! Clients that violate HTTP, or send incomplete or oversized requests.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::json;
use sglang_server::config::FrontendConfig;

use crate::common::{Echo, TIMEOUT, args, get, metric};

const LIMIT: usize = 10_000;
const READ_TIMEOUT: Duration = Duration::from_secs(1);

fn strict_server() -> Echo {
    let config = FrontendConfig {
        body_limit: LIMIT,
        read_timeout: READ_TIMEOUT,
        ..FrontendConfig::default()
    };
    Echo::start(args(), config)
}

/// Sends `bytes`, and returns everything up to the end of the connection.
fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // The kernel resets a connection that is closed with unread data.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        read => drop(read.expect("the server closes")),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn silent_and_incomplete_connections_time_out() {
    let echo = strict_server();
    let post = "POST /generate HTTP/1.1\r\nHost: x\r\n";
    #[rustfmt::skip]
    let cases = [
        ("no byte",                   String::new(),                              ""),
        ("incomplete method",         "P".into(),                                 ""),
        ("incomplete HTTP/2 preface", "PRI * HTTP/2.0\r\n".into(),                ""),
        ("incomplete head",           post.into(),                                ""),
        ("incomplete body",           format!("{post}Content-Length: 9\r\n\r\n{{"), "HTTP/1.1 408 "),
        ("incomplete chunk",          format!("{post}Transfer-Encoding: chunked\r\n\r\n9\r\n{{"), "HTTP/1.1 408 "),
    ];
    for (name, bytes, beginning) in cases {
        let begin = Instant::now();
        let answer = raw(echo.address(), bytes.as_bytes());
        assert!(answer.starts_with(beginning), "{name}: {answer}");
        assert_eq!(beginning.is_empty(), answer.is_empty(), "{name}: {answer}");
        let took = begin.elapsed();
        assert!(
            took > READ_TIMEOUT / 2 && took < TIMEOUT / 2,
            "{name}: {took:?}"
        );
    }
}

#[test]
fn an_http2_preface_in_pieces_is_recognised() {
    let echo = strict_server();
    let mut stream = TcpStream::connect(echo.address()).unwrap();
    stream.write_all(b"P").unwrap();
    stream.write_all(b"RI").unwrap();
    std::thread::sleep(READ_TIMEOUT / 10);
    stream
        .write_all(b" * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(4, frame[3], "settings of HTTP/2");
}

/// The `Content-Length` decides, without waiting for the body.
#[test]
fn an_oversized_body_is_refused_at_once() {
    let echo = strict_server();
    let large = 99_999_999_999_u64;
    for expect in ["", "Expect: 100-continue\r\n"] {
        let head = format!(
            "POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{expect}Content-Length: {large}\r\n\r\n"
        );
        let answer = raw(echo.address(), head.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 413 "), "{expect}: {answer}");
    }
    // A body at the limit, and one that is a byte longer.
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
fn invalid_http_ends_only_its_connection() {
    let echo = strict_server();
    let headers = "X: 1\r\n".repeat(10_000);
    #[rustfmt::skip]
    let cases = [
        ("NUL in a path",         "GET /a\0b HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),      "HTTP/1.1 400 "),
        ("escaped NUL in a path", "GET /a%00b HTTP/1.1\r\nConnection: close\r\n\r\n".into(), "HTTP/1.1 404 "),
        ("many headers",          format!("GET /health HTTP/1.1\r\n{headers}\r\n"),        "HTTP/1.1 431 "),
        ("huge Content-Length",   "POST /generate HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n".into(), "HTTP/1.1 400 "),
    ];
    for (name, bytes, beginning) in cases {
        let answer = raw(echo.address(), bytes.as_bytes());
        assert!(answer.starts_with(beginning), "{name}: {answer}");
    }
    // Pipelined requests are answered.
    let mut pipelined = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20);
    pipelined.push_str("GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answers = raw(echo.address(), pipelined.as_bytes());
    assert_eq!(20, answers.matches("HTTP/1.1 200 ").count());
    assert_eq!(1, answers.matches("HTTP/1.1 404 ").count());
    assert_eq!(200, get(echo.address(), "/health").status);
    assert_eq!(0, metric(&echo.server, "sglang_requests_total"));
}
