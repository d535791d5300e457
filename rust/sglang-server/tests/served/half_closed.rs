//! Clients that shut their sending half and read on.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
};

use serde_json::{Value, json};
use sglang_server::{config::FrontendConfig, runtime::Server, wire};

use crate::common::{SOON, args, eventually, finish, metric, send, silent, step, told};

const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\n";

fn server() -> Server {
    Server::start(args(), FrontendConfig::default(), 0, &[]).unwrap()
}

fn ask(server: &Server, stream: bool) -> TcpStream {
    let body = json!({"input_ids": [1], "stream": stream}).to_string();
    send(server.address(), "POST", "/generate", &body)
}

/// Reads until `what` has come; gives everything until there.
fn until(client: &mut TcpStream, what: &str) -> String {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(what) {
        let mut byte = [0];
        let read = client.read(&mut byte).unwrap();
        assert!(read == 1, "{}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
    String::from_utf8(seen).unwrap()
}

/// Reads to the end. Where the answer takes long, it is asked again whether anybody is
/// there.
fn rest(client: &mut TcpStream) -> String {
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    rest.trim_start_matches(INTERIM).to_owned()
}

/// No abort, then and later.
fn nobody_left(server: &Server) {
    eventually("nothing is live", || {
        metric(server, "sglang_requests_live") == 0
    });
    assert!(silent(server));
    assert_eq!(0, metric(server, "sglang_requests_aborted_total"));
}

/// One abort, and nothing is left.
fn aborted_once(server: &Server, rid: &str) {
    let abort = told(server);
    assert_eq!(("AbortReq", rid), (abort.tag.as_str(), abort.rid.as_str()));
    eventually("nothing is live", || {
        metric(server, "sglang_requests_live") == 0
    });
    assert!(silent(server));
}

#[test]
fn before_the_answer_an_interim_one_is_sent() {
    let server = server();
    for stream in [false, true] {
        let mut client = ask(&server, stream);
        let rid = told(&server).rid;
        client.shutdown(Shutdown::Write).unwrap();
        // The server has seen that nothing more comes.
        assert_eq!(INTERIM, until(&mut client, "\r\n\r\n"));
        step(&server, &rid, &[65], &Value::Null, 1);
        finish(&server, &rid, &[66]);
        let answer = rest(&mut client);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains(r#""text":"AB""#), "{answer}");
        assert_eq!(stream, answer.contains("data: [DONE]"), "{answer}");
    }
    nobody_left(&server);
}

#[test]
fn between_events_a_comment_is_sent() {
    let server = server();
    let mut client = ask(&server, true);
    let rid = told(&server).rid;
    step(&server, &rid, &[65], &Value::Null, 1);
    until(&mut client, "data: ");
    client.shutdown(Shutdown::Write).unwrap();
    until(&mut client, "\r\n:\n\n\r\n");
    step(&server, &rid, &[66], &Value::Null, 1);
    until(&mut client, r#""text":"AB""#);
    finish(&server, &rid, &[67]);
    let answer = rest(&mut client);
    assert!(answer.contains(r#""text":"ABC""#), "{answer}");
    assert!(answer.contains("data: [DONE]"), "{answer}");
    nobody_left(&server);
}

/// One who goes after having said that he sends no more is one who has left.
#[test]
fn who_leaves_later_aborts_once() {
    let server = server();
    for begun in [false, true] {
        let mut client = ask(&server, true);
        let rid = told(&server).rid;
        if begun {
            step(&server, &rid, &[65], &Value::Null, 1);
            until(&mut client, "data: ");
        }
        client.shutdown(Shutdown::Write).unwrap();
        until(&mut client, if begun { ":\n\n\r\n" } else { INTERIM });
        drop(client);
        // What has been sent is acknowledged already: the next bytes tell.
        step(&server, &rid, &[66], &Value::Null, 1);
        step(&server, &rid, &[66], &Value::Null, 1);
        aborted_once(&server, &rid);
    }
}

/// Nothing is on its way that would tell: the client is asked again.
#[test]
fn who_leaves_before_the_answer_aborts_once() {
    let server = server();
    let mut client = ask(&server, false);
    let rid = told(&server).rid;
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(INTERIM, until(&mut client, "\r\n\r\n"));
    drop(client);
    aborted_once(&server, &rid);
}

/// A body that the route does not need is one all the same.
#[test]
fn a_body_that_nobody_reads_hides_nothing() {
    let server = server();
    let mut client = send(server.address(), "POST", "/flush_cache", "{}");
    let rid = told(&server).rid;
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(INTERIM, until(&mut client, "\r\n\r\n"));
    let result = rmp_serde::to_vec(&json!({"success": true, "message": "flushed"})).unwrap();
    assert!(server.push_blocking(wire::control_frame(&rid, &result)));
    assert!(rest(&mut client).ends_with(r#"{"message":"flushed","success":true}"#));
    nobody_left(&server);
}

/// Megabytes, read slowly: all of them come.
#[test]
fn a_large_answer_comes_whole() {
    let server = server();
    let mut client = ask(&server, false);
    let rid = told(&server).rid;
    client.shutdown(Shutdown::Write).unwrap();
    until(&mut client, INTERIM);
    let ids = vec![65; 2_000_000];
    finish(&server, &rid, &ids);
    eventually("it is on its way", || {
        metric(&server, "sglang_requests_live") == 0
    });
    let answer = rest(&mut client);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("content-length: {}", body.len())),
        "{head}"
    );
    let whole: Value = serde_json::from_str(body).unwrap();
    assert_eq!(ids.len(), whole["output_ids"].as_array().unwrap().len());
    nobody_left(&server);
}

/// All of several requests that came at once are answered, in order.
#[test]
fn requests_in_a_row_are_answered() {
    let server = server();
    let mut client = TcpStream::connect(server.address()).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    for id in [1, 2] {
        let body = json!({"input_ids": [id]}).to_string();
        let head = "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
        write!(client, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    for (id, token) in [(1, 65), (2, 66)] {
        let request = told(&server);
        assert_eq!(vec![id], request.ids);
        finish(&server, &request.rid, &[token]);
        let text = format!("\"text\":\"{}\"", char::from(token as u8));
        until(&mut client, &text);
    }
    assert!(rest(&mut client).ends_with('}'));
    nobody_left(&server);
}

/// HTTP/1.0 has no interim answers: who stops sending has left.
#[test]
fn an_older_client_is_not_asked() {
    let server = server();
    let mut client = TcpStream::connect(server.address()).unwrap();
    let body = r#"{"input_ids":[1]}"#;
    let head = "POST /generate HTTP/1.0\r\nContent-Type: application/json\r\n";
    write!(client, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let rid = told(&server).rid;
    client.shutdown(Shutdown::Write).unwrap();
    let abort = told(&server);
    assert_eq!(("AbortReq", &rid), (abort.tag.as_str(), &abort.rid));
    assert_eq!("", rest(&mut client));
}
