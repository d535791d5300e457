//! The text of answers over HTTP, for every form of request. The scheduler sends one byte per step.
//! The text must be complete, and cut at the first stop string.

use serde_json::{Value, json};
use sglang_server::config::FrontendConfig;

use crate::common::{Answer, Echo, args, post};

/// Characters of one to four bytes, and a joined emoji.
const SAMPLE: &str = "한국어 👨‍👩‍👧 é \u{2028} ✅";

/// The `n` of calls with several answers.
const SEVERAL: usize = 5;

/// A text and its stop strings.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    stops: Vec<&'static str>,
}

/// The expected answer.
#[derive(Debug, PartialEq)]
struct Expected {
    text: String,
    stopped_by: Option<String>,
}

/// The reference: decode all bytes at once, and cut at the first complete stop string. If several
/// are completed by the same byte, the longest one counts.
fn reference(case: &Case, no_stop_trim: bool) -> Expected {
    let whole = String::from_utf8_lossy(&case.bytes).into_owned();
    for end in whole.char_indices().map(|(at, char)| at + char.len_utf8()) {
        let ends = |stop: &&&str| whole[..end].ends_with(**stop);
        if let Some(stop) = case.stops.iter().filter(ends).max_by_key(|stop| stop.len()) {
            let kept = if no_stop_trim { end } else { end - stop.len() };
            return Expected {
                text: whole[..kept].to_owned(),
                stopped_by: Some((*stop).to_owned()),
            };
        }
    }
    Expected {
        text: whole,
        stopped_by: None,
    }
}

fn cases() -> Vec<Case> {
    let sample = SAMPLE.as_bytes();
    #[rustfmt::skip]
    let cases: &[(&str, &[u8], &[&str])] = &[
        ("complete characters",            sample,                              &[]),
        ("ends after 1 of 3 bytes",        &sample[..1],                        &[]),
        ("ends after 2 of 3 bytes",        &sample[..sample.len() - 1],          &[]),
        ("ends after 3 of 4 bytes",        "a👨".as_bytes().split_last().unwrap().1, &[]),
        ("invalid bytes",                  b"a\xFFb\xC0\xAF\xE2\x9Cc\xED\xA0\x80\xF5d", &[]),
        ("invalid, then incomplete",       b"\x80\x80\xF0\x9F\x91",            &[]),
        ("stop in the middle",             sample,                              &["é \u{2028}"]),
        ("stop within a joined emoji",     sample,                              &["\u{200D}👩"]),
        ("incomplete character of a stop", &sample[..sample.len() - 1],          &["\u{2028} ✅"]),
        ("stop after invalid bytes",       b"a\xFF\xE2\x9C end \xE2",          &["end"]),
        ("replacement character as stop",  b"ab\xFFcd",                        &["\u{FFFD}"]),
        ("incomplete stop",                b"alpha\nUser",                     &["\nUser:"]),
        ("stop across words",              b"alpha beta gamma",                &["ta ga"]),
        ("overlapping, longer one first",  b"xaaby",                           &["aab", "ab"]),
        ("overlapping, the shorter fits",  b"xaxaby",                          &["aab", "ab"]),
        ("overlapping, three attempts",    b"aaaab",                           &["aab", "ab"]),
        ("inner stop is complete first",   b"xabcdy",                          &["abcd", "bc"]),
        ("the whole output",               sample,                              &[SAMPLE]),
        ("stop is the last character",     b"all of it.",                      &["."]),
        ("stop is the first character",    b"\nnothing",                       &["\n"]),
        ("quotes and control characters",  b"say \"no\\\"\x00\x1F\r\n\n end",  &["\n\n end"]),
    ];
    let case = |&(name, bytes, stops): &(_, &[u8], &[_])| Case {
        name,
        bytes: bytes.to_vec(),
        stops: stops.to_vec(),
    };
    cases.iter().map(case).collect()
}

/// The complete answers in order. Events of a stream are put together.
fn answers(answer: &Answer, stream: bool, incremental: bool, count: usize) -> Vec<Value> {
    assert_eq!(200, answer.status, "{answer:?}");
    if !stream {
        return match answer.json() {
            Value::Array(answers) => answers,
            answer => vec![answer],
        };
    }
    let mut events = answer.events();
    assert_eq!(Some("[DONE]".to_owned()), events.pop());
    let mut wholes = vec![Value::Null; count];
    for event in events {
        let event: Value = serde_json::from_str(&event).unwrap();
        let whole = &mut wholes[event["index"].as_u64().unwrap_or(0) as usize];
        let finish = &whole["meta_info"]["finish_reason"];
        assert!(finish.is_null(), "{event} comes after the end");
        let before = whole["text"].as_str().unwrap_or("").to_owned();
        *whole = event;
        let text = whole["text"].as_str().unwrap();
        if incremental {
            whole["text"] = (before + text).into();
        } else {
            assert!(
                text.starts_with(&before),
                "{text:?} does not continue {before:?}"
            );
        }
    }
    wholes
}

fn check(echo: &Echo, case: &Case, incremental: bool) {
    for (stream, n, no_stop_trim) in [
        (false, 1, false),
        (false, 1, true),
        (false, SEVERAL, false),
        (true, 1, false),
        (true, 1, true),
        (true, SEVERAL, false),
        (true, SEVERAL, true),
    ] {
        let expected = reference(case, no_stop_trim);
        let sampling = json!({"n": n, "stop": case.stops, "no_stop_trim": no_stop_trim});
        let body = json!({"input_ids": case.bytes, "stream": stream, "sampling_params": sampling});
        let answer = post(echo.address(), "/generate", &body);
        let answers = answers(&answer, stream, incremental, n);
        assert_eq!(n, answers.len(), "{}", case.name);
        for answer in &answers {
            let what = format!("{}, {body}: {answer}", case.name);
            let reason = &answer["meta_info"]["finish_reason"];
            let seen = Expected {
                text: answer["text"].as_str().unwrap().to_owned(),
                stopped_by: reason["matched"].as_str().map(str::to_owned),
            };
            assert_eq!(expected, seen, "{what}");
            let stopped = expected.stopped_by.is_some();
            let kind = if stopped { "stop" } else { "length" };
            assert_eq!(kind, reason["type"], "{what}");
            let tokens = answer["meta_info"]["completion_tokens"].as_u64().unwrap() as usize;
            assert!(tokens <= case.bytes.len(), "{what}");
            assert!(stopped || tokens == case.bytes.len(), "{what}");
        }
    }
}

#[test]
fn text_is_complete_and_ends_at_the_first_stop() {
    for incremental in [false, true] {
        let mut args = args();
        args.incremental_streaming_output = incremental;
        let echo = Echo::start(args, FrontendConfig::default());
        for case in cases() {
            check(&echo, &case, incremental);
        }
    }
}

/// Guards against the same bug in the reference and in the server.
#[test]
fn the_reference_gives_the_known_answers() {
    let expected = [
        ("ends after 2 of 3 bytes", "한국어 👨‍👩‍👧 é \u{2028} \u{FFFD}"),
        ("stop in the middle", "한국어 👨‍👩‍👧 "),
        ("overlapping, longer one first", "x"),
        ("overlapping, the shorter fits", "xax"),
        ("inner stop is complete first", "xa"),
        ("the whole output", ""),
    ];
    let cases = cases();
    for (name, text) in expected {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        assert_eq!(text, reference(case, false).text, "{name}");
    }
}
