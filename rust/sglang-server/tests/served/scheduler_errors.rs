//! Errors that the scheduler reports or causes.

use std::io::Read as _;

use serde_json::{Value, json};
use sglang_server::wire;

use crate::common::{
    expect_abort, finish, read_answer, receive, send_generate, start_server, step,
};

#[test]
fn an_abort_with_a_status_becomes_the_http_status() {
    let server = start_server();
    let abort = |status| json!({"type": "abort", "message": "no such tool", "status_code": status});
    for (status, stream) in [(400, false), (503, false), (400, true), (503, true)] {
        let mut client = send_generate(&server, json!({"stream": stream}));
        step(&server, &receive(&server).rid, &[], &abort(status), 3);
        let answer = read_answer(&mut client);
        assert_eq!(status, answer.status, "{answer:?}");
        assert_eq!(
            json!({"error": {"message": "no such tool", "code": status}}),
            answer.json()
        );
    }
}

#[test]
fn an_abort_after_the_stream_began_becomes_an_error_event() {
    let server = start_server();
    let mut client = send_generate(&server, json!({"stream": true}));
    let rid = receive(&server).rid;
    step(&server, &rid, &[65], &Value::Null, 3);
    let mut beginning = [0; 400];
    let seen = client.read(&mut beginning).unwrap();
    let abort = json!({"type": "abort", "message": "no such tool", "status_code": 400});
    step(&server, &rid, &[], &abort, 3);
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    let whole = String::from_utf8_lossy(&beginning[..seen]).into_owned() + &rest;
    assert!(whole.starts_with("HTTP/1.1 200"), "{whole}");
    assert!(
        whole.contains(r#"data: {"error":{"code":400,"message":"no such tool"}}"#),
        "{whole}"
    );
    assert!(!whole.contains("[DONE]"), "{whole}");
}

#[test]
fn a_malformed_frame_fails_the_requests_that_it_names() {
    let server = start_server();
    let mut client = send_generate(&server, json!({}));
    let rid = receive(&server).rid;
    let header = rmp_serde::to_vec(&json!([[rid], [null], [3], [1]])).unwrap();
    assert!(server.push_blocking(wire::batch_frame(&header, &[&[0; 3]]).unwrap()));
    let answer = read_answer(&mut client);
    assert_eq!(500, answer.status);
    assert!(answer.body.contains("malformed frame"), "{answer:?}");
    assert_eq!("AbortReq", receive(&server).tag);
    // The next request is not affected, even by a frame of an unknown kind.
    let mut client = send_generate(&server, json!({}));
    assert!(server.push_blocking(vec![9, 9, 9]));
    finish(&server, &receive(&server).rid, &[65]);
    assert_eq!(200, read_answer(&mut client).status);
}

#[test]
fn an_error_frame_is_a_500_and_an_abort() {
    let server = start_server();
    let mut client = send_generate(&server, json!({}));
    let rid = receive(&server).rid;
    assert!(server.push_blocking(wire::error_frame(&rid, "cannot read the header")));
    let answer = read_answer(&mut client);
    assert_eq!(500, answer.status);
    assert!(answer.body.contains("cannot read the header"), "{answer:?}");
    expect_abort(&server, &rid);
}
