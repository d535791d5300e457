//! Settings that make the start fail.

use std::{thread, time::Duration};

use serde_json::{Value, json};
use sglang_server::{Server, config::FrontendConfig};

use crate::common::{args, finish, read_answer, receive, send_generate, start_server};

#[test]
fn a_port_in_use_fails_the_start() {
    let first = start_server();
    let mut args = args();
    args.port = first.address().port();
    let error = Server::start(args, FrontendConfig::default(), 0, &[]).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot listen on 127.0.0.1:"),
        "{error}"
    );
}

#[test]
fn invalid_arguments_fail_the_start() {
    let with_preferred = |params: Value| {
        let mut args = args();
        args.preferred_sampling_params = params.as_object().cloned();
        args
    };
    let mut without_name = args();
    without_name.served_model_name.clear();
    #[rustfmt::skip]
    let cases = [
        (without_name,                         "`served_model_name` is empty"),
        (with_preferred(json!({"top_n": 1})),  "`preferred_sampling_params.top_n` is not a sampling parameter"),
        (with_preferred(json!({"top_k": 0})),  "`preferred_sampling_params.top_k` must be at least 1, or -1 for all tokens, not 0"),
    ];
    for (args, problem) in cases {
        let error = Server::start(args, FrontendConfig::default(), 0, &[]).unwrap_err();
        assert_eq!(format!("invalid server_args: {problem}"), error.to_string());
    }
}

#[test]
fn impossible_queue_sizes_fail_the_start() {
    let default = FrontendConfig::default;
    #[rustfmt::skip]
    let cases = [
        (FrontendConfig { to_scheduler_cap: 0, ..default() },        "to_scheduler_cap is 0"),
        (FrontendConfig { from_scheduler_cap: 0, ..default() },      "from_scheduler_cap is 0"),
        (FrontendConfig { stage_cap: 0, ..default() },               "stage_channel_cap is 0"),
        (FrontendConfig { stage_cap: usize::MAX, ..default() },      "stage_channel_cap is 18446744073709551615"),
    ];
    for (config, problem) in cases {
        let error = Server::start(args(), config, 0, &[]).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
    }
    let mut many = args();
    many.tokenizer_worker_num = usize::MAX;
    let error = Server::start(many, default(), 0, &[]).unwrap_err();
    assert!(
        error.to_string().contains("tokenizer_worker_num"),
        "{error}"
    );
}

#[test]
fn an_infinite_drain_deadline_is_accepted() {
    let server = start_server();
    let mut client = send_generate(&server, json!({}));
    let rid = receive(&server).rid;
    thread::scope(|scope| {
        let stopping = scope.spawn(|| server.shutdown(Duration::MAX));
        finish(&server, &rid, &[65]);
        assert_eq!(200, read_answer(&mut client).status);
        stopping.join().unwrap();
    });
}
