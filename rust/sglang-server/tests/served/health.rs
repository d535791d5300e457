//! `/health` and `/health_generate`.

use std::time::Duration;

use sglang_server::{Server, config::FrontendConfig};

use crate::common::{args, eventually, expect_abort, get, receive};

fn server(config: FrontendConfig) -> Server {
    Server::start(args(), config, 0, &[]).unwrap()
}

/// The scheduler must take messages at least once per `heartbeat_limit`.
#[test]
fn a_scheduler_that_takes_no_messages_is_unhealthy() {
    let server = server(FrontendConfig {
        heartbeat_limit: Duration::from_millis(300),
        ..FrontendConfig::default()
    });
    let health = || get(server.address(), "/health");
    assert_eq!(503, health().status);
    assert!(health().body.contains("has not begun"), "{}", health().body);
    eventually("healthy while the scheduler takes messages", || {
        drop(server.take(1));
        health().status == 200
    });
    eventually(
        "unhealthy when the scheduler has stopped taking messages",
        || {
            let answer = health();
            answer.status == 503 && answer.body.contains("has not taken requests")
        },
    );
}

/// The probe is aborted after `health_timeout`.
#[test]
fn a_scheduler_that_sends_nothing_fails_the_probe() {
    let server = server(FrontendConfig {
        health_timeout: Duration::from_millis(200),
        ..FrontendConfig::default()
    });
    let answer = get(server.address(), "/health_generate");
    assert_eq!(503, answer.status);
    assert!(answer.body.contains("has sent nothing"), "{}", answer.body);
    let probe = receive(&server);
    assert_eq!("TokenizedGenerateReqInput", probe.tag);
    assert!(probe.rid.starts_with("HEALTH_CHECK_"), "{}", probe.rid);
    expect_abort(&server, &probe.rid);
}
