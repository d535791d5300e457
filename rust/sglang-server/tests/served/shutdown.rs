//! Shutdown: the drain, its deadline, and requests that are still open.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sglang_server::{Server, config::FrontendConfig};

use crate::common::{
    TIMEOUT, args, eventually, finish, get, metric, read_answer, receive, send_generate, step,
};

const LONG: Duration = Duration::from_mins(10);

fn server() -> Arc<Server> {
    Arc::new(Server::start(args(), FrontendConfig::default(), 0, &[]).unwrap())
}

/// Calls `shutdown` on another thread.
fn shutdown_in_background(server: &Arc<Server>, drain: Duration) -> thread::JoinHandle<()> {
    let server = Arc::clone(server);
    thread::spawn(move || server.shutdown(drain))
}

/// Reads to the end, with a pause before each megabyte.
fn read_slowly(mut client: TcpStream) -> String {
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

/// The drain lasts until the client has read the answer, not only until it is generated.
#[test]
fn an_answer_that_is_still_being_read_is_not_cut() {
    let server = server();
    let client = send_generate(&server, json!({}));
    let rid = receive(&server).rid;
    finish(&server, &rid, &vec![65; 4_000_000]);
    eventually("the answer is generated", || {
        metric(&server, "sglang_requests_live") == 0
    });
    let ending = shutdown_in_background(&server, Duration::from_secs(20));
    let answer = read_slowly(client);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let length = format!("content-length: {}", body.len());
    assert!(head.contains(&length), "{head}: {} came", body.len());
    ending.join().unwrap();
}

#[test]
fn incomplete_requests_do_not_delay_the_shutdown() {
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
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client.write_all(beginning.as_bytes()).unwrap();
        client
    });
    // Connections are accepted in order, so this answer means that all were accepted.
    assert_eq!(0, metric(&server, "sglang_requests_live"));
    let begin = Instant::now();
    server.shutdown(LONG);
    assert!(begin.elapsed() < TIMEOUT, "{:?}", begin.elapsed());
    for mut client in clients {
        let mut rest = Vec::new();
        // End of file, or a reset if the server had unread data.
        let _ = client.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP/1.1 200"));
    }
}

/// The first and the second call return when the server has ended.
#[test]
fn a_second_shutdown_with_a_shorter_drain_shortens_the_first() {
    let server = server();
    let mut client = send_generate(&server, json!({"stream": true}));
    let rid = receive(&server).rid;
    step(&server, &rid, &[65], &json!(null), 1);
    let mut first = [0; 16];
    client.read_exact(&mut first).unwrap();
    let ending = shutdown_in_background(&server, LONG);
    eventually("the server no longer listens", || {
        TcpStream::connect(server.address()).is_err()
    });
    assert!(!ending.is_finished());
    let begin = Instant::now();
    server.shutdown(Duration::from_millis(100));
    assert!(begin.elapsed() < TIMEOUT, "{:?}", begin.elapsed());
    ending.join().unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("the server is shutting down"), "{rest}");
    assert!(!rest.contains("[DONE]"), "{rest}");
    // A third call returns at once.
    server.shutdown(LONG);
}

#[test]
fn shutdown_drains_and_then_fails_open_requests() {
    let server = server();
    let mut quick = send_generate(&server, json!({}));
    let quick_rid = receive(&server).rid;
    let mut stuck = send_generate(&server, json!({"stream": true}));
    let stuck_rid = receive(&server).rid;
    step(&server, &stuck_rid, &[65], &Value::Null, 3);
    let mut unread = send_generate(&server, json!({}));
    receive(&server);
    let begin = Instant::now();
    let stopping = shutdown_in_background(&server, Duration::from_millis(500));
    finish(&server, &quick_rid, &[66]);
    assert_eq!("B", read_answer(&mut quick).json()["text"]);
    let stuck = read_answer(&mut stuck);
    assert!(stuck.body.contains("shutting down"), "{stuck:?}");
    assert!(!stuck.body.contains("[DONE]"), "{stuck:?}");
    let unread = read_answer(&mut unread);
    assert_eq!(503, unread.status, "{unread:?}");
    stopping.join().unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    // A second shutdown is harmless. The port is closed, and frames are no longer accepted.
    server.shutdown(TIMEOUT);
    assert!(TcpStream::connect(server.address()).is_err());
    assert!(!server.push_blocking(vec![1]));
}

#[test]
fn an_idle_server_stops_at_once() {
    let server = server();
    let idle = TcpStream::connect(server.address()).unwrap();
    assert_eq!(
        503,
        get(server.address(), "/health").status,
        "the scheduler has not taken a request yet"
    );
    let begin = Instant::now();
    server.shutdown(TIMEOUT);
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    drop(idle);
}
