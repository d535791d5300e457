//! Frames compared with the bytes that are pinned in `WIRE.md`.

use std::fmt::Write as _;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    Frame, MalformedFrame, abort, batch_frame, control_frame, error_frame, flush_cache, generate,
    internal_state,
};
use crate::{
    ids::Rid,
    message::{
        Extras, FinishReason, GenerateRequest, Prompt, SamplingParams, Step, request::Bootstrap,
        response::TokenLogprob,
    },
};

/// The bytes under the heading `name`.
fn pinned(name: &str) -> Vec<u8> {
    let text = include_str!("../../WIRE.md");
    let section = text
        .split_once(&format!("#### `{name}`\n"))
        .unwrap_or_else(|| panic!("WIRE.md has no `{name}`"))
        .1;
    let (_, hex) = section.split_once("```hex\n").unwrap();
    let (hex, _) = hex.split_once("```").unwrap();
    let digits: Vec<u8> = hex
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[track_caller]
fn assert_pinned(name: &str, frame: &[u8]) {
    let hex = |bytes: &[u8]| {
        let mut digits = String::new();
        for byte in bytes {
            write!(digits, "{byte:02x}").unwrap();
        }
        digits
    };
    assert_eq!(hex(&pinned(name)), hex(frame), "{name}");
}

fn rid(name: &str) -> Rid {
    Rid::whole(name.into())
}

/// A request with only a prompt.
fn plain() -> GenerateRequest {
    GenerateRequest::plain(rid("r-1"), Prompt::Ids(vec![1, 2]))
}

/// A request with every field set, each to a different value.
fn full() -> GenerateRequest {
    GenerateRequest {
        rid: rid("r-2"),
        stream: true,
        return_logprob: true,
        logprob_start_len: 7,
        top_logprobs_num: 5,
        token_ids_logprob: Some(vec![11, 70_000]),
        return_hidden_states: true,
        bootstrap: Bootstrap {
            host: Some("10.0.0.1".into()),
            port: Some(8998),
            room: Some((1 << 62) + 1),
            pair_key: Some("k".into()),
            decode_tp_size: Some(4),
        },
        routed_dp_rank: Some(1),
        disagg_prefill_dp_rank: Some(2),
        sampling: full_sampling(),
        ..plain()
    }
}

fn full_sampling() -> SamplingParams {
    let custom = json!({"a": [1, 2.5, null, true, "x"]});
    SamplingParams {
        max_new_tokens: None,
        stop_token_ids: Some(vec![3, 4]),
        temperature: 0.5,
        top_p: 0.25,
        top_k: 40,
        min_p: 0.125,
        frequency_penalty: -1.5,
        presence_penalty: 1.5,
        repetition_penalty: 1.25,
        min_new_tokens: 2,
        n: 1,
        json_schema: Some("{}".into()),
        regex: Some("[a-z]".into()),
        ebnf: Some("root ::= x".into()),
        structural_tag: Some("{\"t\":1}".into()),
        ignore_eos: true,
        skip_special_tokens: false,
        spaces_between_special_tokens: false,
        no_stop_trim: true,
        stream_interval: Some(3),
        logit_bias: Some(vec![(9, -2.0), (10, 1.0)]),
        sampling_seed: Some(-5),
        custom_params: custom.as_object().cloned(),
        stop_strs: vec!["\n\n".into(), "é".into()],
        stop_str_max_len: 6,
    }
}

#[test]
fn frames_to_the_scheduler_have_the_pinned_bytes() {
    assert_pinned("generate, plain", &generate(&plain(), None));
    assert_pinned("generate, full", &generate(&full(), Some("prompt")));
    assert_pinned("abort", &abort(&rid("r-1")));
    assert_pinned("internal state", &internal_state(&rid("r-1")));
    assert_pinned("flush cache", &flush_cache(&rid("r-1")));
}

fn logprob(logprob: f32, id: i32) -> TokenLogprob {
    TokenLogprob { logprob, id }
}

fn steps() -> Vec<(String, Step)> {
    let finish = json!({"type": "stop", "matched": 7});
    let ended = Step {
        output_ids: vec![5, 7],
        finish: finish.as_object().cloned().map(FinishReason),
        prompt_tokens: 3,
        extras: None,
    };
    let continuing = Step {
        output_ids: vec![-1],
        prompt_tokens: 300,
        ..Step::default()
    };
    let without_tokens = Step::default();
    vec![
        ("r-1".into(), ended),
        ("r-2".into(), continuing),
        ("r-3".into(), without_tokens),
    ]
}

/// The first request has extras of all kinds, the second none, the third only hidden states.
fn steps_with_extras() -> Vec<(String, Step)> {
    let extras = Extras {
        output: vec![logprob(-0.5, 5), logprob(-1.5, 7)],
        input: vec![logprob(f32::NEG_INFINITY, 1)],
        output_top: vec![vec![logprob(-0.5, 5), logprob(-0.75, 6)], vec![]],
        input_top: vec![vec![logprob(-2.0, 9)]],
        output_ids: vec![vec![], vec![logprob(-3.0, 8)]],
        input_ids: vec![vec![logprob(-4.0, 8)]],
        hidden: vec![vec![0.5, -0.5], vec![1.0]],
    };
    let hidden = Extras {
        hidden: vec![vec![2.0]],
        ..Extras::default()
    };
    let mut steps = steps();
    steps[0].1.extras = Some(Box::new(extras));
    steps[2].1.extras = Some(Box::new(hidden));
    steps
}

fn read(frame: &[u8]) -> Result<Frame, MalformedFrame> {
    Frame::read(&Bytes::copy_from_slice(frame))
}

#[test]
fn pinned_bytes_are_decoded_as_frames() {
    assert_eq!(Ok(Frame::Batch(steps())), read(&pinned("batch")));
    assert_eq!(
        Ok(Frame::Batch(steps_with_extras())),
        read(&pinned("batch, extras"))
    );
    assert_pinned("control", &control_frame("r-1", b"\x81\xa1k\xc0"));
    let control = Frame::Control {
        rid: "r-1".into(),
        payload: Bytes::from_static(b"\x81\xa1k\xc0"),
    };
    assert_eq!(Ok(control), read(&pinned("control")));
    assert_pinned("error", &error_frame("r-1", "no such field"));
    let error = Frame::Error {
        rid: "r-1".into(),
        message: "no such field".into(),
    };
    assert_eq!(Ok(error), read(&pinned("error")));
}

/// Python passes the header and the columns separately.
#[test]
fn batch_frame_joins_header_and_columns() {
    let frame = pinned("batch, extras");
    let length = u32::from_le_bytes(*frame[1..].first_chunk().unwrap()) as usize;
    let (header, data) = frame[5..].split_at(length);
    let (some, others) = data.split_at(12);
    assert_eq!(Ok(frame.clone()), batch_frame(header, &[some, &[], others]));
}

/// NaN stands for a missing log-probability. It has its own test, because NaN equals no value.
#[test]
fn nan_is_decoded() {
    let mut frame = pinned("batch, extras");
    let tokens_end = frame.len() - steps_data_len() + 12;
    frame[tokens_end..tokens_end + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let Ok(Frame::Batch(steps)) = read(&frame) else {
        panic!("the frame was rejected");
    };
    let extras = steps[0].1.extras.as_ref().unwrap();
    assert!(extras.output[0].logprob.is_nan());
    assert_eq!(logprob(-1.5, 7), extras.output[1]);
}

/// Three tokens, eight log-probabilities and four hidden numbers.
fn steps_data_len() -> usize {
    4 * (3 + 2 * 8 + 4)
}

fn batch_of(header: &Value, data: usize) -> Vec<u8> {
    let header = rmp_serde::to_vec(header).unwrap();
    batch_frame(&header, &[&vec![0; data]]).unwrap()
}

/// A batch of `a` and `b` with one token each. Column `changed` of the extras is `lens`.
fn with_column(changed: usize, lens: &[u32], data: usize) -> Vec<u8> {
    let extras = (0..12).map(|column| {
        if column == changed {
            json!(lens)
        } else {
            json!([])
        }
    });
    let core = [
        json!(["a", "b"]),
        json!([null, null]),
        json!([1, 1]),
        json!([1, 1]),
    ];
    batch_of(&core.into_iter().chain(extras).collect(), data)
}

#[test]
fn malformed_frames_name_their_requests() {
    let core =
        |rids: Value, finish: Value, lens: Value| batch_of(&json!([rids, finish, [1, 1], lens]), 8);
    let both = || json!(["a", "b"]);
    let nulls = || json!([null, null]);
    #[rustfmt::skip]
    let cases: &[(&str, Vec<u8>, &[&str], &str)] = &[
        ("empty",                   vec![],                                              &[], "the frame is empty"),
        ("unknown kind",            vec![9, 0],                                          &[], "unknown frame kind 9"),
        ("control: one value",      vec![1, 0x91, 0xa1, b'a'],                           &[], ""),
        ("control: no bytes",       vec![1, 0x92, 0xa1, b'a', 0x01],                     &[], ""),
        ("error: surplus",          vec![3, 0x92, 0xa1, b'a', 0xa1, b'b', 0],            &[], "1 byte(s) follow the value"),
        ("no length",               vec![2, 1, 0, 0],                                    &[], "the frame ends before the header length"),
        ("short header",            vec![2, 9, 0, 0, 0, 0x90],                           &[], "the header is truncated: 1 of 9 bytes"),
        ("header: not an array",    batch_of(&json!({"a": 1}), 0),                       &[], "the header is not an array"),
        ("header: no columns",      batch_of(&json!([]), 0),                             &[], "the header has no columns"),
        ("rids: not strings",       batch_of(&json!([[1], [null], [1], [1]]), 4),        &[], ""),
        ("one column",              batch_of(&json!([["a", "b"]]), 0),                   &["a", "b"], "the header has 1 columns instead of 4 or 16"),
        ("five columns",            batch_of(&json!([["a"], [null], [1], [1], []]), 4),  &["a"], "the header has 5 columns instead of 4 or 16"),
        ("finish: too short",       core(both(), json!([null]), json!([1, 1])),          &["a", "b"], "the columns have [1, 2, 2] elements for 2 request(s)"),
        ("finish: not a map",       core(both(), json!([null, "stop"]), json!([1, 1])),  &["a", "b"], ""),
        ("lens: negative",          core(both(), nulls(), json!([1, -1])),               &["a", "b"], ""),
        ("lens: too many",          core(both(), nulls(), json!([1, 1, 0])),             &["a", "b"], "the columns have [2, 2, 3] elements for 2 request(s)"),
        ("data: too short",         core(both(), nulls(), json!([1, 2])),                &["a", "b"], "the header implies 12 bytes of data, not 8"),
        ("data: too long",          core(both(), nulls(), json!([1, 0])),                &["a", "b"], "the header implies 4 bytes of data, not 8"),
        ("data: beyond memory",     core(both(), nulls(), json!([u32::MAX, u32::MAX])),  &["a", "b"], "the header implies 34359738360 bytes of data, not 8"),
        ("extras: one of two",      with_column(0, &[1], 16),                            &["a", "b"], "a column of extras has 1 elements for 2 request(s)"),
        ("extras: no lengths",      with_column(2, &[1, 1], 8),                          &["a", "b"], "2 positions have 0 lengths"),
        ("extras: no positions",    with_column(3, &[1, 1], 24),                         &["a", "b"], "0 positions have 2 lengths"),
        ("hidden: no positions",    with_column(11, &[1], 12),                           &["a", "b"], "0 positions have 1 lengths"),
    ];
    for (name, frame, rids, reason) in cases {
        let error = read(frame).expect_err(name);
        assert_eq!(*rids, error.rids, "{name}");
        if reason.is_empty() {
            assert!(!error.reason.is_empty(), "{name}");
        } else {
            assert_eq!(*reason, error.reason, "{name}");
        }
    }
}

proptest! {
    /// A damaged frame never panics, and a truncated frame is rejected.
    #[test]
    fn damaged_frames_are_rejected_or_decoded(
        name in prop::sample::select(vec!["batch", "batch, extras", "control", "error"]),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let mut frame = pinned(name);
        let at = at.index(frame.len());
        prop_assert!(read(&frame[..at]).is_err());
        frame[at] = byte;
        let _ = read(&frame);
        frame.push(byte);
        let _ = read(&frame);
    }
}
