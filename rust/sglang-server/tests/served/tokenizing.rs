//! Requests whose text is with the tokenizer, which takes its time.

use std::sync::Arc;

use serde_json::json;
use sglang_server::{
    config::FrontendConfig,
    runtime::Server,
    tokenizer::{AutoSpecials, ByteTokenizer, TextTokenizer, TokenizeError, Vocabulary},
};

use crate::common::{
    SOON, args, eventually, finish, metric, post, read_answer, send, silent, told,
};

/// A tokenizer of bytes that waits for leave before each text.
struct Slow {
    bytes: ByteTokenizer,
    /// Told when one is begun.
    begun: flume::Sender<()>,
    leave: flume::Receiver<()>,
}

impl TextTokenizer for Slow {
    fn encode_with(&self, text: &str, special: AutoSpecials) -> Result<Vec<i32>, TokenizeError> {
        // Errors: the test is over.
        let _ = self.begun.send(());
        let _ = self.leave.recv();
        self.bytes.encode_with(text, special)
    }

    fn decode(&self, ids: &[i32], skip_special_tokens: bool) -> Result<String, TokenizeError> {
        self.bytes.decode(ids, skip_special_tokens)
    }

    fn vocabulary(&self) -> &Vocabulary {
        self.bytes.vocabulary()
    }
}

/// A server; what tells that a text is begun, and what lets one go on.
fn server(stage_cap: usize) -> (Server, flume::Receiver<()>, flume::Sender<()>) {
    let (give, leave) = flume::unbounded();
    let (begun, begins) = flume::unbounded();
    let tokenizer = Slow {
        bytes: ByteTokenizer::default(),
        begun,
        leave,
    };
    let config = FrontendConfig {
        stage_cap,
        ..FrontendConfig::default()
    };
    let server = Server::start_with(args(), config, 0, &[], Arc::new(tokenizer)).unwrap();
    (server, begins, give)
}

fn live(server: &Server, count: u64) {
    eventually("so many are live", || {
        metric(server, "sglang_requests_live") == count
    });
}

/// Texts that wait keep nobody waiting who has none, and what is too much is told so.
#[test]
fn a_tokenizer_that_is_busy_delays_texts_alone() {
    let (server, begins, give) = server(2);
    let text = json!({"text": "ab"}).to_string();
    // One is worked on, two wait; who comes then is refused.
    let mut texts = Vec::new();
    for count in 1..=3 {
        texts.push(send(server.address(), "POST", "/generate", &text));
        live(&server, count);
        if count == 1 {
            begins.recv_timeout(SOON).unwrap();
        }
    }
    let refused = post(server.address(), "/generate", &json!({"text": "c"}));
    assert_eq!(503, refused.status, "{}", refused.body);
    let mut ids = send(
        server.address(),
        "POST",
        "/generate",
        r#"{"input_ids":[7]}"#,
    );
    let request = told(&server);
    assert_eq!(vec![7], request.ids);
    finish(&server, &request.rid, &[65]);
    assert_eq!("A", read_answer(&mut ids).json()["text"]);
    drop(give);
    for _ in &texts {
        let request = told(&server);
        assert_eq!(vec![97, 98], request.ids);
        finish(&server, &request.rid, &[66]);
    }
    for mut client in texts {
        assert_eq!("B", read_answer(&mut client).json()["text"]);
    }
    live(&server, 0);
}

/// Of a client that leaves meanwhile the scheduler never hears.
#[test]
fn who_leaves_before_there_are_tokens_was_never_there() {
    let (server, begins, give) = server(8);
    for stream in [false, true] {
        let body = json!({"text": "ab", "stream": stream}).to_string();
        let client = send(server.address(), "POST", "/generate", &body);
        begins.recv_timeout(SOON).unwrap();
        live(&server, 1);
        drop(client);
        live(&server, 0);
        give.send(()).unwrap();
        let mut last = send(
            server.address(),
            "POST",
            "/generate",
            r#"{"input_ids":[7]}"#,
        );
        let request = told(&server);
        assert_eq!(vec![7], request.ids);
        finish(&server, &request.rid, &[65]);
        assert_eq!(200, read_answer(&mut last).status);
        assert!(silent(&server));
    }
}
