//! How a server says that it can answer, or cannot.

use std::time::Duration;

use sglang_server::{config::FrontendConfig, runtime::Server};

use crate::common::{args, eventually, get, told};

fn server(config: FrontendConfig) -> Server {
    Server::start(args(), config, 0, &[]).unwrap()
}

/// A scheduler has to look at its inbox, at first and again and again.
#[test]
fn a_scheduler_that_does_not_look_is_not_healthy() {
    let server = server(FrontendConfig {
        heartbeat_limit: Duration::from_millis(300),
        ..FrontendConfig::default()
    });
    let health = || get(server.address(), "/health");
    assert_eq!(503, health().status);
    assert!(health().body.contains("has not begun"), "{}", health().body);
    eventually("it is healthy while somebody looks", || {
        drop(server.take(1));
        health().status == 200
    });
    eventually("it is not when nobody has for a time", || {
        let answer = health();
        answer.status == 503 && answer.body.contains("has not taken requests")
    });
}

/// The probe is bounded, and given up.
#[test]
fn a_silent_scheduler_fails_the_probe() {
    let server = server(FrontendConfig {
        health_timeout: Duration::from_millis(200),
        ..FrontendConfig::default()
    });
    let answer = get(server.address(), "/health_generate");
    assert_eq!(503, answer.status);
    assert!(answer.body.contains("has sent nothing"), "{}", answer.body);
    let probe = told(&server);
    assert_eq!("TokenizedGenerateReqInput", probe.tag);
    assert!(probe.rid.starts_with("HEALTH_CHECK_"), "{}", probe.rid);
    let abort = told(&server);
    assert_eq!(("AbortReq", probe.rid), (abort.tag.as_str(), abort.rid));
}
