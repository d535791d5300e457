//! The routes over real sockets, with a scheduler that echoes the prompt.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use serde_json::json;
use sglang_server::config::FrontendConfig;

use crate::common::{Echo, ask, get, post};

#[test]
fn generate_answers_with_text_and_meta_info() {
    let echo = Echo::new();
    let answer = post(echo.address(), "/generate", &json!({"text": "한국어 é"}));
    assert_eq!(200, answer.status, "{answer:?}");
    let body = answer.json();
    assert_eq!("한국어 é", body["text"]);
    assert_eq!(12, body["meta_info"]["prompt_tokens"]);
    assert_eq!(12, body["meta_info"]["completion_tokens"]);
    assert_eq!("length", body["meta_info"]["finish_reason"]["type"]);
    assert!(body["meta_info"]["e2e_latency"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_last_event_of_a_stream_has_the_whole_text() {
    let echo = Echo::new();
    let answer = post(
        echo.address(),
        "/generate",
        &json!({"text": "한국어", "stream": true}),
    );
    assert_eq!(200, answer.status, "{answer:?}");
    let events = answer.events();
    let (done, frames) = events.split_last().unwrap();
    assert_eq!("[DONE]", done);
    let last: serde_json::Value = serde_json::from_str(frames.last().unwrap()).unwrap();
    assert_eq!("한국어", last["text"]);
    assert_eq!(9, last["output_ids"].as_array().unwrap().len());
}

#[test]
fn info_health_and_flush_routes() {
    let echo = Echo::new();
    let model = get(echo.address(), "/model_info").json();
    assert_eq!("served", model["served_model_name"]);
    assert_eq!(model, get(echo.address(), "/get_model_info").json());
    let server = get(echo.address(), "/server_info");
    assert_eq!(
        json!([{"last_gen_throughput": 1.5}]),
        server.json()["internal_states"]
    );
    assert!(!server.body.contains("secret"));
    assert_eq!(200, get(echo.address(), "/health").status);
    assert_eq!(200, get(echo.address(), "/health_generate").status);
    let flushed = ask(echo.address(), "POST", "/flush_cache", "").json();
    assert_eq!(json!({"success": true, "message": "flushed"}), flushed);
}

#[test]
fn tokenize_and_detokenize_are_inverse() {
    let echo = Echo::new();
    let tokens = post(echo.address(), "/tokenize", &json!({"prompt": "né"})).json();
    assert_eq!(3, tokens["count"]);
    assert_eq!(1024, tokens["max_model_len"]);
    let text = post(
        echo.address(),
        "/detokenize",
        &json!({"tokens": tokens["tokens"]}),
    );
    assert_eq!(json!({"text": "né"}), text.json());
}

#[test]
fn answers_to_a_list_are_in_order() {
    let echo = Echo::new();
    let answer = post(
        echo.address(),
        "/generate",
        &json!({"text": ["a", "bb", "c"]}),
    );
    let texts: Vec<_> = answer
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["text"].clone())
        .collect();
    assert_eq!(vec!["a", "bb", "c"], texts);
    let one = post(echo.address(), "/generate", &json!({"text": ["a"]}));
    assert_eq!("a", one.json()[0]["text"]);
    let mixed = post(
        echo.address(),
        "/generate",
        &json!({"input_ids": [[65], [299, 300]]}),
    )
    .json();
    assert_eq!("A", mixed[0]["text"]);
    assert_eq!(400, mixed[1]["error"]["code"]);
    let several = post(
        echo.address(),
        "/generate",
        &json!({"text": "a", "sampling_params": {"n": 3}}),
    )
    .json();
    assert_eq!(3, several.as_array().unwrap().len());
}

#[test]
fn events_of_a_list_have_an_index() {
    let echo = Echo::new();
    let body = json!({"input_ids": [[65, 66], [300], [67]], "stream": true});
    let answer = post(echo.address(), "/generate", &body);
    let mut events = answer.events();
    assert_eq!(Some("[DONE]".into()), events.pop());
    let mut texts = [const { String::new() }; 3];
    for event in events {
        let event: serde_json::Value = serde_json::from_str(&event).unwrap();
        let index = usize::try_from(event["index"].as_u64().unwrap()).unwrap();
        texts[index] = match event.get("error") {
            Some(error) => error["code"].to_string(),
            None => event["text"].as_str().unwrap().into(),
        };
    }
    assert_eq!(["AB", "400", "C"], texts);
}

#[test]
fn incremental_streaming_sends_deltas() {
    let mut args = crate::common::args();
    args.incremental_streaming_output = true;
    let echo = Echo::start(args, FrontendConfig::default());
    let answer = post(
        echo.address(),
        "/generate",
        &json!({"text": "aé", "stream": true}),
    );
    let mut events = answer.events();
    events.pop();
    let frames: Vec<serde_json::Value> = events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let text: String = frames
        .iter()
        .map(|frame| frame["text"].as_str().unwrap())
        .collect();
    assert_eq!("aé", text);
    let counts: Vec<_> = frames
        .iter()
        .map(|frame| frame["meta_info"]["completion_tokens"].clone())
        .collect();
    assert_eq!(vec![1, 2, 3], counts);
    assert!(
        frames
            .iter()
            .all(|frame| frame["output_ids"].as_array().unwrap().len() == 1)
    );
}

#[test]
fn every_refusal_has_an_error_object() {
    let echo = Echo::start(
        crate::common::args(),
        FrontendConfig {
            body_limit: 1000,
            ..FrontendConfig::default()
        },
    );
    let address = echo.address();
    let large = json!({"text": "a".repeat(1000)}).to_string();
    #[rustfmt::skip]
    let cases = [
        ("invalid JSON",                       ask(address, "POST", "/generate", "{"),                     400, ""),
        ("no prompt",                          ask(address, "POST", "/generate", "{}"),                    400, ""),
        ("wrong type",                         ask(address, "POST", "/generate", r#"{"text": 1}"#),        400, "text"),
        ("unknown option",                     ask(address, "POST", "/generate", r#"{"text": "a", "sampling_params": {"tempo": 1}}"#), 400, "tempo"),
        ("too many tokens for the body limit", post(address, "/generate", &json!({"input_ids": vec![65; 1024]})), 413, "larger"),
        ("body too large",                     ask(address, "POST", "/generate", &large),                  413, "larger"),
        ("unknown path",                       get(address, "/v1/nothing"),                                404, "`/v1/nothing`"),
        ("trailing slash",                     ask(address, "POST", "/generate/", "{}"),                   404, ""),
        ("other method",                       get(address, "/generate"),                                  405, "`GET`"),
        ("not a token",                        post(address, "/detokenize", &json!({"tokens": [300]})),    400, "tokens[0]"),
        ("no tokens",                          post(address, "/detokenize", &json!({"tokens": "x"})),      400, ""),
        ("no prompt",                          post(address, "/tokenize", &json!({})),                     400, "prompt"),
    ];
    for (name, answer, status, problem) in cases {
        assert_eq!(status, answer.status, "{name}: {answer:?}");
        let error = answer.json()["error"].clone();
        assert_eq!(status, error["code"], "{name}");
        assert!(
            error["message"].as_str().unwrap().contains(problem),
            "{name}: {error}"
        );
    }
}

#[test]
fn content_types_other_than_utf8_json_are_refused() {
    let echo = Echo::new();
    let with =
        |headers: &str| crate::common::ask_with(echo.address(), headers, r#"{"text": "a"}"#).status;
    #[rustfmt::skip]
    let cases = [
        ("Content-Type: application/json\r\n",       200),
        ("Content-Type: application/json; charset=UTF-8\r\n", 200),
        ("Content-Type: Application/JSON; charset=\"utf-8\"\r\n", 200),
        ("",                                         200),
        ("Content-Type: application/json; charset=utf-16\r\n", 415),
        ("Content-Type: text/plain\r\n",             415),
        ("Content-Type: application/x-www-form-urlencoded\r\n", 415),
        ("Content-Type: application/vnd.api+json\r\n", 415),
        ("Content-Type: application/json\r\nContent-Encoding: br\r\n", 415),
        ("Content-Encoding: identity\r\n",           200),
        ("Content-Encoding: gzip\r\n",               400),
    ];
    for (headers, status) in cases {
        assert_eq!(status, with(headers), "{headers}");
    }
}

#[test]
fn the_body_limit_applies_to_the_decompressed_size() {
    let config = FrontendConfig {
        body_limit: 100_000,
        ..FrontendConfig::default()
    };
    let echo = Echo::start(crate::common::args(), config);
    for (letters, status) in [(100, 200), (200_000, 413)] {
        let body = json!({"text": "a".repeat(letters)}).to_string();
        let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
        compressed.write_all(body.as_bytes()).unwrap();
        let compressed = compressed.finish().unwrap();
        assert!(compressed.len() < 10_000);
        let answer =
            crate::common::ask_bytes(echo.address(), "Content-Encoding: gzip\r\n", &compressed);
        assert_eq!(status, answer.status, "{answer:?}");
    }
}
