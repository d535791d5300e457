//! Request ids of clients, and aborts by request id.

use serde_json::json;
use sglang_server::{Server, config::FrontendConfig};

use crate::common::{
    args, eventually, expect_abort, finish, metric, post, read_answer, receive, send_generate,
    start_server, step,
};

/// A server with room for one message to the scheduler.
fn server_with_one_slot() -> Server {
    let config = FrontendConfig {
        to_scheduler_cap: 1,
        ..FrontendConfig::default()
    };
    Server::start(args(), config, 0, &[]).unwrap()
}

fn wait_for_live(server: &Server, count: u64) {
    eventually("the requests are live", || {
        metric(server, "sglang_requests_live") == count
    });
}

#[test]
fn a_live_rid_is_refused_and_can_be_reused_afterwards() {
    let server = start_server();
    let body = json!({"input_ids": [1], "rid": "x"});
    let mut first = send_generate(&server, body.clone());
    let request = receive(&server);
    assert!(request.rid.starts_with("x#"), "{}", request.rid);
    let second = post(server.address(), "/generate", &body);
    assert_eq!(400, second.status);
    let message = second.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(message.contains("rid `x` is in use"), "{message}");
    finish(&server, &request.rid, &[65]);
    assert_eq!("x", read_answer(&mut first).json()["meta_info"]["id"]);
    let mut third = send_generate(&server, body);
    finish(&server, &receive(&server).rid, &[65]);
    assert_eq!(200, read_answer(&mut third).status);
}

#[test]
fn an_aborted_request_ends_with_the_finish_reason_of_the_scheduler() {
    let server = start_server();
    let mut client = send_generate(&server, json!({"rid": "x"}));
    let request = receive(&server);
    let aborted = post(server.address(), "/abort_request", &json!({"rid": "x"}));
    assert_eq!(json!({"success": true, "aborted": 1}), aborted.json());
    expect_abort(&server, &request.rid);
    step(
        &server,
        &request.rid,
        &[65],
        &json!({"type": "abort", "message": "asked to"}),
        3,
    );
    let answer = read_answer(&mut client).json();
    assert_eq!("abort", answer["meta_info"]["finish_reason"]["type"]);
    let again = post(server.address(), "/abort_request", &json!({"rid": "x"}));
    assert_eq!(json!({"success": true, "aborted": 0}), again.json());
    assert_eq!(
        400,
        post(server.address(), "/abort_request", &json!({})).status
    );
}

#[test]
fn an_abort_waits_for_room_in_the_queue() {
    let server = server_with_one_slot();
    let first = send_generate(&server, json!({}));
    let rid = receive(&server).rid;
    // The queue is full again when the first client disconnects.
    let _second = send_generate(&server, json!({}));
    wait_for_live(&server, 2);
    drop(first);
    wait_for_live(&server, 1);
    assert_eq!("TokenizedGenerateReqInput", receive(&server).tag);
    expect_abort(&server, &rid);
}

/// Repeated aborts of one request must not fill memory while the queue is full.
#[test]
fn repeated_aborts_of_a_request_are_sent_once() {
    let server = server_with_one_slot();
    let _first = send_generate(&server, json!({"rid": "x"}));
    let rid = receive(&server).rid;
    let _second = send_generate(&server, json!({}));
    wait_for_live(&server, 2);
    for _ in 0..20 {
        let answer = post(server.address(), "/abort_request", &json!({"rid": "x"}));
        assert_eq!(200, answer.status, "{}", answer.body);
    }
    assert_eq!("TokenizedGenerateReqInput", receive(&server).tag);
    expect_abort(&server, &rid);
    let _third = send_generate(&server, json!({}));
    assert_eq!("TokenizedGenerateReqInput", receive(&server).tag);
}
