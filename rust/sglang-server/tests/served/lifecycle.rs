//! Every request gets one end, whoever leaves, dies or is too slow.

use std::{
    io::Read as _,
    net::Shutdown,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sglang_server::{config::FrontendConfig, runtime::Server, wire};

use crate::common::{
    SOON, args, ask, eventually, finish, get, metric, post, read_answer, send, silent, step, told,
};

fn server() -> Server {
    Server::start(args(), FrontendConfig::default(), 0, &[]).unwrap()
}

fn generate(body: Value) -> String {
    let mut body = body;
    body["input_ids"] = json!([1, 2, 3]);
    body.to_string()
}

#[test]
fn a_client_that_leaves_aborts_once() {
    let server = server();
    // Phase by phase: nothing was sent back, a stream has begun.
    for (stream, begun) in [(false, false), (true, false), (true, true)] {
        let mut client = send(
            server.address(),
            "POST",
            "/generate",
            &generate(json!({"stream": stream})),
        );
        let request = told(&server);
        if begun {
            step(&server, &request.rid, &[65], &Value::Null, 3);
            let mut first = [0; 16];
            client.read_exact(&mut first).unwrap();
        }
        drop(client);
        let abort = told(&server);
        assert_eq!(("AbortReq", &request.rid), (abort.tag.as_str(), &abort.rid));
        // A late frame reaches nobody.
        finish(&server, &request.rid, &[66]);
        eventually("nothing is live", || {
            metric(&server, "sglang_requests_live") == 0
        });
        assert!(silent(&server));
    }
    assert_eq!(3, metric(&server, "sglang_requests_aborted_total"));
}

#[test]
fn an_answered_request_is_not_aborted() {
    let server = server();
    let client = send(server.address(), "POST", "/generate", &generate(json!({})));
    finish(&server, &told(&server).rid, &[65]);
    let mut client = client;
    assert_eq!("A", read_answer(&mut client).json()["text"]);
    eventually("nothing is live", || {
        metric(&server, "sglang_requests_live") == 0
    });
    assert!(silent(&server));
}

#[test]
fn a_live_name_is_taken_and_free_afterwards() {
    let server = server();
    let body = generate(json!({"rid": "x"}));
    let mut first = send(server.address(), "POST", "/generate", &body);
    let request = told(&server);
    assert!(request.rid.starts_with("x#"), "{}", request.rid);
    let second = ask(server.address(), "POST", "/generate", &body);
    assert_eq!(400, second.status);
    let message = second.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(message.contains("rid `x` is in use"), "{message}");
    finish(&server, &request.rid, &[65]);
    assert_eq!("x", read_answer(&mut first).json()["meta_info"]["id"]);
    let mut third = send(server.address(), "POST", "/generate", &body);
    finish(&server, &told(&server).rid, &[65]);
    assert_eq!(200, read_answer(&mut third).status);
}

#[test]
fn an_abort_by_name_ends_as_the_scheduler_says() {
    let server = server();
    let mut client = send(
        server.address(),
        "POST",
        "/generate",
        &generate(json!({"rid": "x"})),
    );
    let request = told(&server);
    let aborted = post(server.address(), "/abort_request", &json!({"rid": "x"}));
    assert_eq!(json!({"success": true, "aborted": 1}), aborted.json());
    let abort = told(&server);
    assert_eq!(("AbortReq", &request.rid), (abort.tag.as_str(), &abort.rid));
    step(
        &server,
        &request.rid,
        &[65],
        &json!({"type": "abort", "message": "asked to"}),
        3,
    );
    let answer = read_answer(&mut client).json();
    assert_eq!("abort", answer["meta_info"]["finish_reason"]["type"]);
    let nobody = post(server.address(), "/abort_request", &json!({"rid": "x"}));
    assert_eq!(json!({"success": true, "aborted": 0}), nobody.json());
    assert_eq!(
        400,
        post(server.address(), "/abort_request", &json!({})).status
    );
}

#[test]
fn the_scheduler_s_words_become_statuses() {
    let server = server();
    let abort = |status| json!({"type": "abort", "message": "no such tool", "status_code": status});
    for (status, stream) in [(400, false), (503, false), (400, true), (503, true)] {
        let body = generate(json!({"stream": stream}));
        let mut client = send(server.address(), "POST", "/generate", &body);
        step(&server, &told(&server).rid, &[], &abort(status), 3);
        let answer = read_answer(&mut client);
        assert_eq!(status, answer.status, "{answer:?}");
        assert_eq!(
            json!({"error": {"message": "no such tool", "code": status}}),
            answer.json()
        );
    }
    // After the first byte the status is said, so an event tells.
    let mut client = send(
        server.address(),
        "POST",
        "/generate",
        &generate(json!({"stream": true})),
    );
    let rid = told(&server).rid;
    step(&server, &rid, &[65], &Value::Null, 3);
    let mut beginning = [0; 400];
    let seen = client.read(&mut beginning).unwrap();
    step(&server, &rid, &[], &abort(400), 3);
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
fn malformed_frames_fail_what_they_name() {
    let server = server();
    let mut client = send(server.address(), "POST", "/generate", &generate(json!({})));
    let rid = told(&server).rid;
    let header = rmp_serde::to_vec(&json!([[rid], [null], [3], [1]])).unwrap();
    assert!(server.push_blocking(wire::batch_frame(&header, &[&[0; 3]]).unwrap()));
    let answer = read_answer(&mut client);
    assert_eq!(500, answer.status);
    assert!(answer.body.contains("malformed frame"), "{answer:?}");
    assert_eq!("AbortReq", told(&server).tag);
    // The next request is none the worse for it.
    let mut client = send(server.address(), "POST", "/generate", &generate(json!({})));
    assert!(server.push_blocking(vec![9, 9, 9]));
    finish(&server, &told(&server).rid, &[65]);
    assert_eq!(200, read_answer(&mut client).status);
}

#[test]
fn an_error_of_the_scheduler_s_side_is_a_500_and_an_abort() {
    let server = server();
    let mut client = send(server.address(), "POST", "/generate", &generate(json!({})));
    let rid = told(&server).rid;
    assert!(server.push_blocking(wire::error_frame(&rid, "cannot read the header")));
    let answer = read_answer(&mut client);
    assert_eq!(500, answer.status);
    assert!(answer.body.contains("cannot read the header"), "{answer:?}");
    let abort = told(&server);
    assert_eq!(("AbortReq", rid), (abort.tag.as_str(), abort.rid.clone()));
}

/// Many more requests than there is room for: each gets an answer, and then all is empty.
#[test]
fn every_request_is_answered_or_told_to_come_again() {
    let config = FrontendConfig {
        to_scheduler_cap: 8,
        stage_cap: 64,
        ..FrontendConfig::default()
    };
    let server = Arc::new(Server::start(args(), config, 0, &[]).unwrap());
    let address = server.address();
    let clients: Vec<_> = (0..16)
        .map(|_| {
            thread::spawn(move || {
                let body = generate(json!({}));
                let ask = |_| ask(address, "POST", "/generate", &body);
                (0..25).map(ask).collect::<Vec<_>>()
            })
        })
        .collect();
    let scheduler = {
        let server = Arc::clone(&server);
        thread::spawn(move || {
            // Ends when nothing has come for a while.
            while server.wait(Duration::from_secs(2)) {
                for message in server.take(2) {
                    let header: Vec<Value> = rmp_serde::from_slice(&message.header).unwrap();
                    if header[0] == "TokenizedGenerateReqInput" {
                        finish(&server, header[1].as_str().unwrap(), &[65]);
                    }
                }
                thread::yield_now();
            }
        })
    };
    let answers: Vec<_> = clients
        .into_iter()
        .flat_map(|client| client.join().unwrap())
        .collect();
    scheduler.join().unwrap();
    assert_eq!(400, answers.len());
    for answer in &answers {
        match answer.status {
            200 => assert_eq!("A", answer.json()["text"]),
            503 => assert!(
                answer.head.to_lowercase().contains("retry-after: "),
                "{answer:?}"
            ),
            _ => panic!("{answer:?}"),
        }
    }
    assert!(answers.iter().any(|answer| answer.status == 200));
    assert_eq!(0, metric(&server, "sglang_requests_live"));
}

#[test]
fn an_abort_waits_for_room() {
    let config = FrontendConfig {
        to_scheduler_cap: 1,
        ..FrontendConfig::default()
    };
    let server = Server::start(args(), config, 0, &[]).unwrap();
    let first = send(server.address(), "POST", "/generate", &generate(json!({})));
    let rid = told(&server).rid;
    // The ring is full again when the first client leaves.
    let _second = send(server.address(), "POST", "/generate", &generate(json!({})));
    eventually("two are live", || {
        metric(&server, "sglang_requests_live") == 2
    });
    drop(first);
    eventually("one is live", || {
        metric(&server, "sglang_requests_live") == 1
    });
    assert_eq!("TokenizedGenerateReqInput", told(&server).tag);
    let abort = told(&server);
    assert_eq!(("AbortReq", rid), (abort.tag.as_str(), abort.rid.clone()));
}

/// Who asks again and again while the scheduler looks away fills nothing.
#[test]
fn an_abort_that_waits_is_one() {
    let config = FrontendConfig {
        to_scheduler_cap: 1,
        ..FrontendConfig::default()
    };
    let server = Server::start(args(), config, 0, &[]).unwrap();
    let named = json!({"input_ids": [1], "rid": "x"}).to_string();
    let _first = send(server.address(), "POST", "/generate", &named);
    let rid = told(&server).rid;
    let _second = send(server.address(), "POST", "/generate", &generate(json!({})));
    eventually("two are live", || {
        metric(&server, "sglang_requests_live") == 2
    });
    for _ in 0..20 {
        let answer = post(server.address(), "/abort_request", &json!({"rid": "x"}));
        assert_eq!(200, answer.status, "{}", answer.body);
    }
    assert_eq!("TokenizedGenerateReqInput", told(&server).tag);
    let abort = told(&server);
    assert_eq!(("AbortReq", rid), (abort.tag.as_str(), abort.rid.clone()));
    let _third = send(server.address(), "POST", "/generate", &generate(json!({})));
    assert_eq!("TokenizedGenerateReqInput", told(&server).tag);
}

#[test]
fn shutdown_lets_requests_end_and_then_ends_them() {
    let server = Arc::new(server());
    let mut quick = send(server.address(), "POST", "/generate", &generate(json!({})));
    let quick_rid = told(&server).rid;
    let mut stuck = send(
        server.address(),
        "POST",
        "/generate",
        &generate(json!({"stream": true})),
    );
    let stuck_rid = told(&server).rid;
    step(&server, &stuck_rid, &[65], &Value::Null, 3);
    let mut unread = send(server.address(), "POST", "/generate", &generate(json!({})));
    told(&server);
    let begin = Instant::now();
    let stopping = {
        let server = Arc::clone(&server);
        thread::spawn(move || server.shutdown(Duration::from_millis(500)))
    };
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
    // Twice is harmless; nobody listens and nothing is taken any more.
    server.shutdown(SOON);
    assert!(std::net::TcpStream::connect(server.address()).is_err());
    assert!(!server.push_blocking(vec![1]));
}

#[test]
fn a_server_without_requests_stops_at_once() {
    let server = server();
    let idle = std::net::TcpStream::connect(server.address()).unwrap();
    assert_eq!(
        503,
        get(server.address(), "/health").status,
        "nobody takes requests yet"
    );
    let begin = Instant::now();
    server.shutdown(SOON);
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    drop(idle);
}

#[test]
fn a_port_that_is_taken_fails_the_start() {
    let first = server();
    let mut args = args();
    args.port = first.address().port();
    let error = Server::start(args, FrontendConfig::default(), 0, &[]).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot listen on 127.0.0.1:"),
        "{error}"
    );
}

#[test]
fn arguments_that_make_no_sense_fail_the_start() {
    let preferring = |params: Value| {
        let mut args = args();
        args.preferred_sampling_params = params.as_object().cloned();
        args
    };
    let mut nameless = args();
    nameless.served_model_name.clear();
    #[rustfmt::skip]
    let cases = [
        (nameless,                         "`served_model_name` is empty"),
        (preferring(json!({"top_n": 1})),  "`preferred_sampling_params.top_n` is not a sampling parameter"),
        (preferring(json!({"top_k": 0})),  "`preferred_sampling_params.top_k` must be at least 1, or -1 for all tokens, not 0"),
    ];
    for (args, problem) in cases {
        let error = Server::start(args, FrontendConfig::default(), 0, &[]).unwrap_err();
        assert_eq!(format!("invalid server_args: {problem}"), error.to_string());
    }
}

/// A client that has sent all and reads on is no client that has left.
#[test]
fn a_client_that_reads_slowly_gets_everything() {
    let server = server();
    let mut client = send(
        server.address(),
        "POST",
        "/generate",
        &generate(json!({"stream": true})),
    );
    let rid = told(&server).rid;
    for _ in 0..2000 {
        step(&server, &rid, &[65], &Value::Null, 3);
    }
    finish(&server, &rid, &[66]);
    thread::sleep(Duration::from_millis(50));
    let answer = read_answer(&mut client);
    let events = answer.events();
    let last: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!(2001, last["meta_info"]["completion_tokens"]);
    assert_eq!("A".repeat(2000) + "B", last["text"].as_str().unwrap());
    client.shutdown(Shutdown::Both).ok();
}
