//! Clients that shut down their sending side and continue to read.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
};

use serde_json::{Value, json};
use sglang_server::{Server, wire};

use crate::common::{
    TIMEOUT, eventually, expect_abort, finish, metric, nothing_received, receive, send,
    send_generate, start_server, step, wait_until_idle,
};

const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\n";

fn start_request(server: &Server, stream: bool) -> TcpStream {
    send_generate(server, json!({"stream": stream}))
}

/// Reads up to and including `end`.
fn read_until(client: &mut TcpStream, end: &str) -> String {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(end) {
        let mut byte = [0];
        let read = client.read(&mut byte).unwrap();
        assert!(read == 1, "{}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
    String::from_utf8(seen).unwrap()
}

/// Reads to the end, and drops further interim responses: the server may send several
/// before the answer.
fn read_rest(client: &mut TcpStream) -> String {
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    rest.trim_start_matches(INTERIM).to_owned()
}

/// Checks that no request was aborted.
fn check_no_abort(server: &Server) {
    wait_until_idle(server);
    assert!(nothing_received(server));
    assert_eq!(0, metric(server, "sglang_requests_aborted_total"));
}

/// Checks that `rid` is aborted, once.
fn check_aborted_once(server: &Server, rid: &str) {
    expect_abort(server, rid);
    wait_until_idle(server);
    assert!(nothing_received(server));
}

#[test]
fn before_the_answer_an_interim_response_probes_the_client() {
    let server = start_server();
    for stream in [false, true] {
        let mut client = start_request(&server, stream);
        let rid = receive(&server).rid;
        client.shutdown(Shutdown::Write).unwrap();
        // The server has noticed the end of the client's sending side.
        assert_eq!(INTERIM, read_until(&mut client, "\r\n\r\n"));
        step(&server, &rid, &[65], &Value::Null, 1);
        finish(&server, &rid, &[66]);
        let answer = read_rest(&mut client);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains(r#""text":"AB""#), "{answer}");
        assert_eq!(stream, answer.contains("data: [DONE]"), "{answer}");
    }
    check_no_abort(&server);
}

#[test]
fn between_events_a_comment_probes_the_client() {
    let server = start_server();
    let mut client = start_request(&server, true);
    let rid = receive(&server).rid;
    step(&server, &rid, &[65], &Value::Null, 1);
    read_until(&mut client, "data: ");
    client.shutdown(Shutdown::Write).unwrap();
    read_until(&mut client, "\r\n:\n\n\r\n");
    step(&server, &rid, &[66], &Value::Null, 1);
    read_until(&mut client, r#""text":"AB""#);
    finish(&server, &rid, &[67]);
    let answer = read_rest(&mut client);
    assert!(answer.contains(r#""text":"ABC""#), "{answer}");
    assert!(answer.contains("data: [DONE]"), "{answer}");
    check_no_abort(&server);
}

#[test]
fn a_disconnect_after_the_half_close_aborts_once() {
    let server = start_server();
    for begun in [false, true] {
        let mut client = start_request(&server, true);
        let rid = receive(&server).rid;
        if begun {
            step(&server, &rid, &[65], &Value::Null, 1);
            read_until(&mut client, "data: ");
        }
        client.shutdown(Shutdown::Write).unwrap();
        read_until(&mut client, if begun { ":\n\n\r\n" } else { INTERIM });
        drop(client);
        // Everything sent so far is acknowledged, so only the next bytes reveal the disconnect.
        step(&server, &rid, &[66], &Value::Null, 1);
        step(&server, &rid, &[66], &Value::Null, 1);
        check_aborted_once(&server, &rid);
    }
}

/// No event is sent, so only a repeated probe can reveal the disconnect.
#[test]
fn a_disconnect_before_the_answer_aborts_once() {
    let server = start_server();
    let mut client = start_request(&server, false);
    let rid = receive(&server).rid;
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(INTERIM, read_until(&mut client, "\r\n\r\n"));
    drop(client);
    check_aborted_once(&server, &rid);
}

/// The route ignores the body. The server must still notice the half-close that follows it.
#[test]
fn a_half_close_behind_an_unread_body_is_noticed() {
    let server = start_server();
    let mut client = send(server.address(), "POST", "/flush_cache", "{}");
    let rid = receive(&server).rid;
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(INTERIM, read_until(&mut client, "\r\n\r\n"));
    let result = rmp_serde::to_vec(&json!({"success": true, "message": "flushed"})).unwrap();
    assert!(server.push_blocking(wire::control_frame(&rid, &result)));
    assert!(read_rest(&mut client).ends_with(r#"{"message":"flushed","success":true}"#));
    check_no_abort(&server);
}

#[test]
fn a_large_answer_is_complete() {
    let server = start_server();
    let mut client = start_request(&server, false);
    let rid = receive(&server).rid;
    client.shutdown(Shutdown::Write).unwrap();
    read_until(&mut client, INTERIM);
    let ids = vec![65; 2_000_000];
    finish(&server, &rid, &ids);
    eventually("the answer is generated", || {
        metric(&server, "sglang_requests_live") == 0
    });
    let answer = read_rest(&mut client);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("content-length: {}", body.len())),
        "{head}"
    );
    let whole: Value = serde_json::from_str(body).unwrap();
    assert_eq!(ids.len(), whole["output_ids"].as_array().unwrap().len());
    check_no_abort(&server);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = start_server();
    let mut client = TcpStream::connect(server.address()).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    for id in [1, 2] {
        let body = json!({"input_ids": [id]}).to_string();
        let head = "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
        write!(client, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    for (id, token) in [(1, 65), (2, 66)] {
        let request = receive(&server);
        assert_eq!(vec![id], request.ids);
        finish(&server, &request.rid, &[token]);
        let text = format!("\"text\":\"{}\"", char::from(token as u8));
        read_until(&mut client, &text);
    }
    assert!(read_rest(&mut client).ends_with('}'));
    check_no_abort(&server);
}

/// HTTP/1.0 has no interim responses, so a half-close counts as a disconnect.
#[test]
fn an_http_1_0_client_is_not_probed() {
    let server = start_server();
    let mut client = TcpStream::connect(server.address()).unwrap();
    let body = r#"{"input_ids":[1]}"#;
    let head = "POST /generate HTTP/1.0\r\nContent-Type: application/json\r\n";
    write!(client, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let rid = receive(&server).rid;
    client.shutdown(Shutdown::Write).unwrap();
    expect_abort(&server, &rid);
    assert_eq!("", read_rest(&mut client));
}
