//! Clients that disconnect, and the aborts that the scheduler gets.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::Arc,
};

use serde_json::{Value, json};
use sglang_server::{
    Server,
    config::{FrontendConfig, ServerArgs},
};

use crate::common::{
    args, eventually, expect_abort, finish, get, metric, nothing_received, post, read_answer,
    receive, send_generate, start_server, step, wait_until_idle,
};

/// The sorted rids of the next `count` messages, all of which have `tag`.
fn receive_rids(server: &Server, tag: &str, count: usize) -> Vec<String> {
    let messages = (0..count).map(|_| receive(server));
    let mut rids: Vec<String> = messages
        .map(|message| {
            assert_eq!(tag, message.tag);
            message.rid
        })
        .collect();
    rids.sort();
    rids
}

/// A stop string that the scheduler does not know ends the request with one abort, which does not
/// count as a disconnect.
#[test]
fn a_stop_string_aborts_once() {
    let server = start_server();
    for stream in [false, true] {
        let body = json!({"input_ids": [1], "stream": stream, "sampling_params": {"stop": ["bc"]}});
        let mut client = send_generate(&server, body);
        let rid = receive(&server).rid;
        for id in b"abcd" {
            step(&server, &rid, &[i32::from(*id)], &Value::Null, 1);
        }
        expect_abort(&server, &rid);
        // The scheduler's answer to the abort, and a late frame.
        finish(&server, &rid, &[]);
        finish(&server, &rid, &[100]);
        let answer = read_answer(&mut client);
        let whole: Value = if stream {
            let events = answer.events();
            assert_eq!("[DONE]", events[events.len() - 1]);
            serde_json::from_str(&events[events.len() - 2]).unwrap()
        } else {
            answer.json()
        };
        assert_eq!("a", whole["text"]);
        assert_eq!("bc", whole["meta_info"]["finish_reason"]["matched"]);
        wait_until_idle(&server);
        assert!(nothing_received(&server));
    }
    assert_eq!(0, metric(&server, "sglang_requests_aborted_total"));
}

/// The request is cut at each byte of its head and its body.
#[test]
fn an_incomplete_request_does_not_reach_the_scheduler() {
    let server = start_server();
    let body = r#"{"input_ids":[1]}"#;
    let length = body.len();
    let whole = format!(
        "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    for cut in 0..whole.len() {
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(&whole.as_bytes()[..cut]).unwrap();
    }
    assert_eq!(200, {
        let mut last = send_generate(&server, json!({}));
        finish(&server, &receive(&server).rid, &[65]);
        read_answer(&mut last).status
    });
    wait_until_idle(&server);
    assert!(nothing_received(&server));
    assert_eq!(1, metric(&server, "sglang_requests_total"));
}

#[test]
fn a_disconnect_aborts_only_the_answers_that_have_not_ended() {
    let server = start_server();
    let body =
        json!({"input_ids": [1], "rid": "five", "stream": true, "sampling_params": {"n": 5}});
    let mut client = send_generate(&server, body);
    let rids = receive_rids(&server, "TokenizedGenerateReqInput", 5);
    finish(&server, &rids[0], &[65]);
    step(&server, &rids[1], &[65], &Value::Null, 1);
    // Wait until both events have arrived: then the first answer has ended for the client too.
    let mut seen = Vec::new();
    while String::from_utf8_lossy(&seen).matches("\"index\":").count() < 2 {
        let mut more = [0; 4096];
        let read = client.read(&mut more).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend(&more[..read]);
    }
    drop(client);
    assert_eq!(rids[1..], receive_rids(&server, "AbortReq", 4));
    wait_until_idle(&server);
    assert!(nothing_received(&server));
    // The rid can be reused: a request with it is refused for another reason.
    let refused = json!({"input_ids": [9999], "rid": "five"});
    eventually("the rid is free", || {
        let answer = post(server.address(), "/generate", &refused);
        !answer.body.contains("is in use")
    });
}

fn start_server_with_one_shard() -> Server {
    let args = ServerArgs {
        detokenizer_worker_num: 1,
        ..args()
    };
    Server::start(args, FrontendConfig::default(), 0, &[]).unwrap()
}

/// Waits until the only shard has processed every frame that was pushed so far. It processes frames in
/// order.
fn wait_for_shard(server: &Server) {
    let mut client = send_generate(server, json!({}));
    let rid = receive(server).rid;
    finish(server, &rid, &[66]);
    assert_eq!(200, read_answer(&mut client).status);
}

/// This holds even if the client has not read the end of its answer when it disconnects.
#[test]
fn an_ended_request_is_not_aborted() {
    let server = start_server_with_one_shard();
    // The client reads nothing, so the connection fills up and events queue behind it.
    let client = send_generate(&server, json!({"stream": true}));
    let rid = receive(&server).rid;
    for _ in 0..4000 {
        step(&server, &rid, &[65; 64], &Value::Null, 1);
    }
    finish(&server, &rid, &[66]);
    wait_for_shard(&server);
    drop(client);
    wait_until_idle(&server);
    assert!(nothing_received(&server), "an ended request was aborted");
    assert_eq!(200, get(server.address(), "/health").status);
}

/// The scheduler never takes a message, and all clients disconnect.
#[test]
fn requests_end_without_a_scheduler() {
    let config = FrontendConfig {
        to_scheduler_cap: 4,
        ..FrontendConfig::default()
    };
    let server = Arc::new(Server::start(args(), config, 0, &[]).unwrap());
    let clients: Vec<TcpStream> = (0..20).map(|_| send_generate(&server, json!({}))).collect();
    eventually("four requests wait and the others were refused", || {
        metric(&server, "sglang_requests_live") == 4
    });
    drop(clients);
    wait_until_idle(&server);
    // The queue holds four requests and four aborts.
    let requests = receive_rids(&server, "TokenizedGenerateReqInput", 4);
    assert_eq!(requests, receive_rids(&server, "AbortReq", 4));
    assert!(nothing_received(&server));
}

#[test]
fn a_disconnect_aborts_once() {
    let server = start_server();
    // The client disconnects before the answer, and after a stream has begun.
    for (stream, begun) in [(false, false), (true, false), (true, true)] {
        let mut client = send_generate(&server, json!({"stream": stream}));
        let request = receive(&server);
        if begun {
            step(&server, &request.rid, &[65], &Value::Null, 3);
            let mut first = [0; 16];
            client.read_exact(&mut first).unwrap();
        }
        drop(client);
        expect_abort(&server, &request.rid);
        // A late frame is dropped.
        finish(&server, &request.rid, &[66]);
        wait_until_idle(&server);
        assert!(nothing_received(&server));
    }
    assert_eq!(3, metric(&server, "sglang_requests_aborted_total"));
}

#[test]
fn an_answered_request_is_not_aborted() {
    let server = start_server();
    let mut client = send_generate(&server, json!({}));
    finish(&server, &receive(&server).rid, &[65]);
    assert_eq!("A", read_answer(&mut client).json()["text"]);
    wait_until_idle(&server);
    assert!(nothing_received(&server));
}

/// A client that reads slowly is not treated as disconnected.
#[test]
fn a_client_that_reads_slowly_gets_everything() {
    let server = start_server_with_one_shard();
    let mut client = send_generate(&server, json!({"stream": true}));
    let rid = receive(&server).rid;
    for _ in 0..2000 {
        step(&server, &rid, &[65], &Value::Null, 3);
    }
    finish(&server, &rid, &[66]);
    wait_for_shard(&server);
    let answer = read_answer(&mut client);
    let events = answer.events();
    let last: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!(2001, last["meta_info"]["completion_tokens"]);
    assert_eq!("A".repeat(2000) + "B", last["text"].as_str().unwrap());
    client.shutdown(Shutdown::Both).ok();
}
