//! A panic fails only its request, does not end the thread, and is counted.

use std::sync::Arc;

use serde_json::{Value, json};
use sglang_server::{
    Server,
    config::FrontendConfig,
    tokenizer::{
        AutoSpecials, ByteTokenizer, Joining, Piece, TextTokenizer, TokenText, TokenizeError,
        Vocabulary,
    },
};

use crate::common::{Answer, Echo, args, metric, post, wait_until_idle};

/// A byte tokenizer that panics on certain texts, both when encoding and when decoding. It decodes
/// all tokens at once, so `decode` is called for answers.
struct Broken {
    bytes: ByteTokenizer,
    vocabulary: Vocabulary,
}

/// Encoding this text panics.
const NO_TOKENS: &str = "no tokens";
/// Decoding to this text panics.
const NO_TEXT: &str = "no text";

impl Broken {
    fn new() -> Self {
        let mut vocabulary = Vocabulary::new(Joining::AllAtOnce);
        for byte in 0..=u8::MAX {
            let text = TokenText::Byte(byte);
            vocabulary.push(Some(Piece {
                first: text,
                later: text,
                special: false,
            }));
        }
        Self {
            bytes: ByteTokenizer::default(),
            vocabulary,
        }
    }
}

impl TextTokenizer for Broken {
    fn encode_with(&self, text: &str, special: AutoSpecials) -> Result<Vec<i32>, TokenizeError> {
        assert!(!text.contains(NO_TOKENS), "on purpose");
        self.bytes.encode_with(text, special)
    }

    fn decode(&self, ids: &[i32], skip_special_tokens: bool) -> Result<String, TokenizeError> {
        let text = self.bytes.decode(ids, skip_special_tokens)?;
        assert!(!text.contains(NO_TEXT), "on purpose");
        Ok(text)
    }

    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }
}

/// The error of an answer, or in the last event of a stream.
fn error(answer: &Answer) -> Value {
    let last = match answer.status {
        200 => answer.events().pop().unwrap(),
        _ => answer.body.clone(),
    };
    serde_json::from_str(&last).unwrap()
}

/// Checks that every thread still works, with three requests on each route.
fn check_all_routes(echo: &Echo) {
    let generate = |text: &str| json!({"text": text});
    for text in ["a", "한국어", "b"] {
        let answer = post(echo.address(), "/generate", &generate(text));
        assert_eq!((200, &json!(text)), (answer.status, &answer.json()["text"]));
        let tokens = post(echo.address(), "/tokenize", &json!({"prompt": text})).json();
        assert_eq!(json!(text.as_bytes()), tokens["tokens"]);
        let back = json!({"tokens": tokens["tokens"]});
        let back = post(echo.address(), "/detokenize", &back);
        assert_eq!(json!({"text": text}), back.json());
    }
}

#[test]
fn a_panic_fails_only_its_request() {
    let mut args = args();
    args.tokenizer_worker_num = 2;
    let config = FrontendConfig::default();
    let server = Server::start_with(args.clone(), config, 0, &[], Arc::new(Broken::new()));
    let echo = Echo::serve(server.unwrap());
    let generate = |text: &str, stream: bool| json!({"text": text, "stream": stream});
    let no_text = NO_TEXT.as_bytes();
    #[rustfmt::skip]
    let cases = [
        ("/generate",   generate(NO_TOKENS, false),                              "tokenizer: it panicked on this prompt"),
        ("/generate",   generate(NO_TOKENS, true),                               "tokenizer: it panicked on this prompt"),
        ("/generate",   json!({"text": "a", "sampling_params": {"stop": NO_TOKENS}}), "tokenizer: it panicked on this prompt"),
        ("/tokenize",   json!({"prompt": NO_TOKENS}),                            "tokenizer: it panicked on this prompt"),
        ("/generate",   generate(NO_TEXT, false),                                "detokenizer: it panicked on these tokens"),
        ("/generate",   generate(NO_TEXT, true),                                 "detokenizer: it panicked on these tokens"),
        ("/detokenize", json!({"tokens": no_text}),                              "detokenizer: it panicked on these tokens"),
    ];
    let mut panics = 0;
    // More panics of each kind than there are threads.
    for _ in 0..2 * args.tokenizer_worker_num.max(args.detokenizer_worker_num) {
        for (path, body, message) in &cases {
            let answer = post(echo.address(), path, body);
            let expected = json!({"error": {"code": 500, "message": message}});
            assert_eq!(expected, error(&answer), "{path} {body}: {answer:?}");
            panics += 1;
            assert_eq!(panics, metric(&echo.server, "sglang_panics_total"));
            // A stream that has begun keeps its status 200.
            assert!(answer.status == 500 || body["stream"] == true);
        }
    }
    check_all_routes(&echo);
    wait_until_idle(&echo.server);
    assert_eq!(panics, metric(&echo.server, "sglang_panics_total"));
}
