//! Who leaves, when, and what the scheduler is told of it.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use sglang_server::{config::FrontendConfig, runtime::Server};

use crate::common::{
    args, eventually, finish, get, metric, post, read_answer, send, silent, step, told,
};

fn server() -> Server {
    Server::start(args(), FrontendConfig::default(), 0, &[]).unwrap()
}

/// The names of the next `count` messages of a kind.
fn all_told(server: &Server, tag: &str, count: usize) -> Vec<String> {
    let messages = (0..count).map(|_| told(server));
    let mut rids: Vec<String> = messages
        .map(|message| {
            assert_eq!(tag, message.tag);
            message.rid
        })
        .collect();
    rids.sort();
    rids
}

fn nothing_lives(server: &Server) {
    eventually("nothing is live", || {
        metric(server, "sglang_requests_live") == 0
    });
}

/// The scheduler hears of a stop string that it cannot see, once; nobody has left.
#[test]
fn a_stop_string_aborts_once_and_is_no_leaving() {
    let server = server();
    for stream in [false, true] {
        let body = json!({"input_ids": [1], "stream": stream, "sampling_params": {"stop": ["bc"]}});
        let mut client = send(server.address(), "POST", "/generate", &body.to_string());
        let rid = told(&server).rid;
        for id in b"abcd" {
            step(&server, &rid, &[i32::from(*id)], &Value::Null, 1);
        }
        let abort = told(&server);
        assert_eq!(("AbortReq", &rid), (abort.tag.as_str(), &abort.rid));
        // As a scheduler answers an abort, and once more.
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
        nothing_lives(&server);
        assert!(silent(&server));
    }
    assert_eq!(0, metric(&server, "sglang_requests_aborted_total"));
}

/// Head or body may be cut off anywhere: the scheduler never hears of it.
#[test]
fn half_a_request_reaches_nobody() {
    let server = server();
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
        let mut last = send(server.address(), "POST", "/generate", body);
        finish(&server, &told(&server).rid, &[65]);
        read_answer(&mut last).status
    });
    nothing_lives(&server);
    assert!(silent(&server));
    assert_eq!(1, metric(&server, "sglang_requests_total"));
}

/// Each of several answers to one call is given up, once.
#[test]
fn one_who_leaves_five_answers_aborts_those_that_have_not_ended() {
    let server = server();
    let body =
        json!({"input_ids": [1], "rid": "five", "stream": true, "sampling_params": {"n": 5}});
    let mut client = send(server.address(), "POST", "/generate", &body.to_string());
    let rids = all_told(&server, "TokenizedGenerateReqInput", 5);
    finish(&server, &rids[0], &[65]);
    step(&server, &rids[1], &[65], &Value::Null, 1);
    // Both have arrived: the first has ended for its client, too.
    let mut seen = Vec::new();
    while String::from_utf8_lossy(&seen).matches("\"index\":").count() < 2 {
        let mut more = [0; 4096];
        let read = client.read(&mut more).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend(&more[..read]);
    }
    drop(client);
    assert_eq!(rids[1..], all_told(&server, "AbortReq", 4));
    nothing_lives(&server);
    assert!(silent(&server));
    // The name is free: a request with it is refused for another reason.
    let refused = json!({"input_ids": [9999], "rid": "five"});
    eventually("the name is free", || {
        let answer = post(server.address(), "/generate", &refused);
        !answer.body.contains("is in use")
    });
}

/// What has ended needs no abort, even if its client leaves without having read that.
#[test]
fn an_end_that_nobody_reads_is_an_end() {
    let server = server();
    let body = json!({"input_ids": [1], "stream": true}).to_string();
    // Not one byte is read, so events wait behind a connection that is full.
    let client = send(server.address(), "POST", "/generate", &body);
    let rid = told(&server).rid;
    for _ in 0..4000 {
        step(&server, &rid, &[65; 64], &Value::Null, 1);
    }
    finish(&server, &rid, &[66]);
    // Frames are counted in order, so the shard has got the last one when this is answered.
    let tokens = post(server.address(), "/detokenize", &json!({"tokens": [65]}));
    assert_eq!(200, tokens.status);
    eventually("all frames have come", || {
        metric(&server, "sglang_scheduler_frames_total") == 4001
    });
    thread::sleep(Duration::from_millis(100));
    drop(client);
    nothing_lives(&server);
    assert!(silent(&server), "an abort of what has ended");
    assert_eq!(200, get(server.address(), "/health").status);
}

/// A scheduler that never looks: everybody may leave, and nothing of them stays.
#[test]
fn a_dead_scheduler_keeps_nobody() {
    let config = FrontendConfig {
        to_scheduler_cap: 4,
        ..FrontendConfig::default()
    };
    let server = Arc::new(Server::start(args(), config, 0, &[]).unwrap());
    let clients: Vec<TcpStream> = (0..20)
        .map(|_| {
            let body = r#"{"input_ids":[1]}"#;
            send(server.address(), "POST", "/generate", body)
        })
        .collect();
    eventually("four wait, the others were refused", || {
        metric(&server, "sglang_requests_live") == 4
    });
    drop(clients);
    nothing_lives(&server);
    // It comes back: four requests, and four aborts behind them.
    let requests = all_told(&server, "TokenizedGenerateReqInput", 4);
    assert_eq!(requests, all_told(&server, "AbortReq", 4));
    assert!(silent(&server));
}
