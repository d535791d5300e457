//! Requests that wait for a slow tokenizer.

use std::sync::Arc;

use serde_json::json;
use sglang_server::{
    Server,
    config::FrontendConfig,
    tokenizer::{AutoSpecials, ByteTokenizer, TextTokenizer, TokenizeError, Vocabulary},
};

use crate::common::{
    TIMEOUT, args, eventually, finish, metric, nothing_received, post, read_answer, receive, send,
    send_generate,
};

/// A byte tokenizer that waits for a permit before it encodes a text.
struct SlowTokenizer {
    bytes: ByteTokenizer,
    /// Signals that encoding has begun.
    begun: flume::Sender<()>,
    permits: flume::Receiver<()>,
}

impl TextTokenizer for SlowTokenizer {
    fn encode_with(&self, text: &str, special: AutoSpecials) -> Result<Vec<i32>, TokenizeError> {
        // An error means that the test has ended.
        let _ = self.begun.send(());
        let _ = self.permits.recv();
        self.bytes.encode_with(text, special)
    }

    fn decode(&self, ids: &[i32], skip_special_tokens: bool) -> Result<String, TokenizeError> {
        self.bytes.decode(ids, skip_special_tokens)
    }

    fn vocabulary(&self) -> &Vocabulary {
        self.bytes.vocabulary()
    }
}

/// A server, the receiver of begin signals, and the sender of permits.
fn server(stage_cap: usize) -> (Server, flume::Receiver<()>, flume::Sender<()>) {
    let (grant, permits) = flume::unbounded();
    let (begun, started) = flume::unbounded();
    let tokenizer = SlowTokenizer {
        bytes: ByteTokenizer::default(),
        begun,
        permits,
    };
    let config = FrontendConfig {
        stage_cap,
        ..FrontendConfig::default()
    };
    let server = Server::start_with(args(), config, 0, &[], Arc::new(tokenizer)).unwrap();
    (server, started, grant)
}

fn wait_for_live(server: &Server, count: u64) {
    eventually("the requests are live", || {
        metric(server, "sglang_requests_live") == count
    });
}

/// Requests with token ids are not delayed. Texts beyond the queue are refused.
#[test]
fn a_busy_tokenizer_delays_only_texts() {
    let (server, started, grant) = server(2);
    let text = json!({"text": "ab"}).to_string();
    // One text is being encoded and two wait. The next one is refused.
    let mut texts = Vec::new();
    for count in 1..=3 {
        texts.push(send(server.address(), "POST", "/generate", &text));
        wait_for_live(&server, count);
        if count == 1 {
            started.recv_timeout(TIMEOUT).unwrap();
        }
    }
    let refused = post(server.address(), "/generate", &json!({"text": "c"}));
    assert_eq!(503, refused.status, "{}", refused.body);
    let mut ids = send_generate(&server, json!({"input_ids": [7]}));
    let request = receive(&server);
    assert_eq!(vec![7], request.ids);
    finish(&server, &request.rid, &[65]);
    assert_eq!("A", read_answer(&mut ids).json()["text"]);
    drop(grant);
    for _ in &texts {
        let request = receive(&server);
        assert_eq!(vec![97, 98], request.ids);
        finish(&server, &request.rid, &[66]);
    }
    for mut client in texts {
        assert_eq!("B", read_answer(&mut client).json()["text"]);
    }
    wait_for_live(&server, 0);
}

#[test]
fn a_disconnect_before_tokenizing_ends_never_reaches_the_scheduler() {
    let (server, started, grant) = server(8);
    for stream in [false, true] {
        let body = json!({"text": "ab", "stream": stream}).to_string();
        let client = send(server.address(), "POST", "/generate", &body);
        started.recv_timeout(TIMEOUT).unwrap();
        wait_for_live(&server, 1);
        drop(client);
        wait_for_live(&server, 0);
        grant.send(()).unwrap();
        let mut last = send_generate(&server, json!({"input_ids": [7]}));
        let request = receive(&server);
        assert_eq!(vec![7], request.ids);
        finish(&server, &request.rid, &[65]);
        assert_eq!(200, read_answer(&mut last).status);
        assert!(nothing_received(&server));
    }
}
