//! How a server goes down under those who are not done.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use sglang_server::{config::FrontendConfig, runtime::Server};

use crate::common::{SOON, args, eventually, finish, metric, send, step, told};

const LONG: Duration = Duration::from_mins(10);

fn server() -> Arc<Server> {
    Arc::new(Server::start(args(), FrontendConfig::default(), 0, &[]).unwrap())
}

fn shutting_down(server: &Arc<Server>, drain: Duration) -> thread::JoinHandle<()> {
    let server = Arc::clone(server);
    thread::spawn(move || server.shutdown(drain))
}

/// Reads to the end, megabytes at a time and with a pause before each.
fn slowly(mut client: TcpStream) -> String {
    let mut all = Vec::new();
    let mut part = vec![0; 1 << 20];
    loop {
        thread::sleep(Duration::from_millis(100));
        match client.read(&mut part).unwrap() {
            0 => return String::from_utf8(all).unwrap(),
            read => all.extend(&part[..read]),
        }
    }
}

/// An answer is not out when the server has it: the drain lasts until it is.
#[test]
fn an_answer_that_is_being_read_is_not_cut() {
    let server = server();
    let body = json!({"input_ids": [1]}).to_string();
    let client = send(server.address(), "POST", "/generate", &body);
    let rid = told(&server).rid;
    finish(&server, &rid, &vec![65; 4_000_000]);
    eventually("the server has it", || {
        metric(&server, "sglang_requests_live") == 0
    });
    let ending = shutting_down(&server, Duration::from_secs(20));
    let answer = slowly(client);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let length = format!("content-length: {}", body.len());
    assert!(head.contains(&length), "{head}: {} came", body.len());
    ending.join().unwrap();
}

/// Who has asked for nothing whole is not waited for.
#[test]
fn half_a_request_keeps_no_server() {
    let server = server();
    let address = server.address();
    let beginnings = [
        "",
        "POST /gen",
        "PRI * HTTP/2.0\r\n",
        "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
    ];
    let clients = beginnings.map(|beginning| {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        client.write_all(beginning.as_bytes()).unwrap();
        client
    });
    // Accepted in order, so all are.
    assert_eq!(0, metric(&server, "sglang_requests_live"));
    let begin = Instant::now();
    server.shutdown(LONG);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    for mut client in clients {
        let mut rest = Vec::new();
        // The end, or a reset: what it had sent was not read.
        let _ = client.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP/1.1 200"));
    }
}

/// Who asks later for less time gets it, and returns when the server has ended.
#[test]
fn a_second_shutdown_shortens_the_first() {
    let server = server();
    let body = json!({"input_ids": [1], "stream": true}).to_string();
    let mut client = send(server.address(), "POST", "/generate", &body);
    let rid = told(&server).rid;
    step(&server, &rid, &[65], &json!(null), 1);
    let mut first = [0; 16];
    client.read_exact(&mut first).unwrap();
    let ending = shutting_down(&server, LONG);
    eventually("it listens no more", || {
        TcpStream::connect(server.address()).is_err()
    });
    assert!(!ending.is_finished());
    let begin = Instant::now();
    server.shutdown(Duration::from_millis(100));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    ending.join().unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("the server is shutting down"), "{rest}");
    assert!(!rest.contains("[DONE]"), "{rest}");
    // And a third has nothing to wait for.
    server.shutdown(LONG);
}
