//! How steps from the scheduler become chunks.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    super::{DecodeOptions, Event, Options, Stops},
    byte_level, faulty, reason, run, step,
    text::{cut, first_stop},
    with_stops,
};
use crate::{
    error::RequestError,
    message::{
        Chunk, Extras, ResponseEvent, Step,
        response::{TextLogprob, TokenLogprob},
    },
    tokenizer::{TextTokenizer, samples},
};

#[test]
fn steps_become_chunks() {
    let running = byte_level();
    let mut reader = running.register(8, Options::default());
    let text = "é✅";
    let ids: Vec<i32> = text.bytes().map(i32::from).collect();
    let length = json!({"type": "length", "length": 5});
    running.steps(
        &reader.rid,
        [
            step(&ids[..1], &Value::Null),
            step(&ids[1..4], &Value::Null),
            step(&ids[4..], &length),
        ],
    );
    let chunk = |text: &str, ids: &[i32], completion_tokens, finish: &Value| Chunk {
        text: text.to_owned(),
        output_ids: ids.to_vec(),
        completion_tokens,
        prompt_tokens: 3,
        finish: reason(finish),
        extras: None,
    };
    let expected = [
        chunk("", &ids[..1], 1, &Value::Null),
        chunk("é", &ids[1..4], 4, &Value::Null),
        chunk("✅", &ids[4..], 5, &length),
    ];
    assert_eq!(expected, reader.all_chunks()[..]);
    assert!(running.end().is_empty());
}

/// Only the token or string that stopped the generation is removed.
#[test]
fn the_stop_is_trimmed_from_the_answer() {
    let stop = |matched: Value| json!({"type": "stop", "matched": matched});
    #[rustfmt::skip]
    let cases = [
        // name, tokens, finish reason, no_stop_trim, tokens for the client, text
        ("length limit",                   vec![97, 98],  json!({"type": "length", "length": 2}), false, vec![97, 98], "ab"),
        ("length limit at special token",  vec![97, 257], json!({"type": "length", "length": 2}), false, vec![97, 257], "a"),
        ("stop token",                     vec![97, 98],  stop(json!(98)),  false, vec![97],      "a"),
        ("stop token, no_stop_trim",       vec![97, 98],  stop(json!(98)),  true,  vec![97, 98],  "ab"),
        ("special stop token",             vec![97, 257], stop(json!(257)), false, vec![97],      "a"),
        ("stop token alone",               vec![257],     stop(json!(257)), false, vec![],        ""),
        ("token 0 is no match",            vec![97, 0],   stop(json!(0)),   false, vec![97, 0],   "a\0"),
        ("matched token not in this step", vec![],        stop(json!(98)),  false, vec![],        ""),
        ("matched token is another",       vec![97, 98],  stop(json!(99)),  false, vec![97, 98],  "ab"),
        ("no matched value",               vec![97],      stop(Value::Null), false, vec![97],      "a"),
        ("stop string",                    vec![97, 98],  stop(json!("b")), false, vec![97, 98],  "a"),
        ("stop string, no_stop_trim",      vec![97, 98, 99], stop(json!("b")), true, vec![97, 98, 99], "ab"),
        ("abort",                          vec![97],      json!({"type": "abort", "message": "no"}), false, vec![97], "a"),
        ("unknown reason",                 vec![97],      json!({"type": "future kind", "x": 1}), false, vec![97], "a"),
        ("incomplete character",           vec![97, 0xC3], json!({"type": "length", "length": 2}), false, vec![97, 0xC3], "a\u{FFFD}"),
    ];
    let running = byte_level();
    for (name, ids, finish, no_stop_trim, expected, text) in cases {
        let options = Options {
            no_stop_trim,
            ..Options::default()
        };
        let mut reader = running.register(8, options);
        running.steps(&reader.rid, [step(&ids, &finish)]);
        let [chunk] = &reader.all_chunks()[..] else {
            panic!("{name}: more than one chunk")
        };
        assert_eq!(
            (expected, text),
            (chunk.output_ids.clone(), chunk.text.as_str()),
            "{name}"
        );
        assert_eq!(ids.len(), chunk.completion_tokens as usize, "{name}");
        assert_eq!(reason(&finish), chunk.finish, "{name}");
    }
    assert!(running.end().is_empty());
}

#[test]
fn a_stop_string_that_the_scheduler_misses_ends_the_answer_and_aborts() {
    for (no_stop_trim, expected) in [(false, ["al", "pha", ""]), (true, ["al", "pha", "!!"])] {
        let running = byte_level();
        let options = Options {
            no_stop_trim,
            ..with_stops(&["!!"])
        };
        let mut reader = running.register(8, options);
        let text = |text: &str| text.bytes().map(i32::from).collect::<Vec<i32>>();
        let steps =
            ["al", "pha!", "! more", "and more"].map(|piece| step(&text(piece), &Value::Null));
        running.steps(&reader.rid, steps);
        let chunks = reader.all_chunks();
        assert_eq!(
            expected,
            chunks
                .iter()
                .map(|chunk| chunk.text.as_str())
                .collect::<Vec<_>>()[..]
        );
        assert_eq!(
            reason(&json!({"type": "stop", "matched": "!!"})),
            chunks[2].finish
        );
        assert_eq!(vec![reader.rid], running.end());
    }
}

/// A stop string found in the last step replaces the scheduler's reason, unless the scheduler
/// names a stop string itself or aborted.
#[test]
fn a_stop_string_in_the_last_step_becomes_the_finish_reason() {
    let found_here = json!({"type": "stop", "matched": "!!"});
    let abort = json!({"type": "abort", "message": "no"});
    #[rustfmt::skip]
    let cases = [
        ("scheduler ended by length", "a!! b", json!({"type": "length", "length": 5}),         &found_here),
        ("scheduler ended by token",  "a!! b", json!({"type": "stop", "matched": 7}),          &found_here),
        ("scheduler found the stop",  "a!!",   found_here.clone(),                                   &found_here),
        ("scheduler aborted",         "a!! b", abort.clone(),                                  &abort),
    ];
    for (name, text, finish, expected) in cases {
        let running = byte_level();
        let mut reader = running.register(8, with_stops(&["!!"]));
        let ids: Vec<i32> = text.bytes().map(i32::from).collect();
        running.steps(&reader.rid, [step(&ids, &finish)]);
        let chunks = reader.all_chunks();
        assert_eq!("a", chunks[0].text, "{name}");
        assert_eq!(reason(expected), chunks[0].finish, "{name}");
        assert!(
            running.end().is_empty(),
            "{name}: the scheduler has already ended the request"
        );
    }
}

#[test]
fn an_abort_with_a_status_is_an_error() {
    let running = byte_level();
    let aborted = |status, message: &str, err_type: Option<&str>| RequestError::Aborted {
        status,
        message: message.to_owned(),
        err_type: err_type.map(str::to_owned),
    };
    #[rustfmt::skip]
    let cases = [
        (json!({"type": "abort", "status_code": 400, "message": "too long", "err_type": "BadRequestError"}), aborted(400, "too long", Some("BadRequestError"))),
        (json!({"type": "abort", "status_code": 503}), aborted(503, "aborted by the scheduler", None)),
    ];
    for (finish, expected) in cases {
        let mut reader = running.register(8, Options::default());
        running.steps(
            &reader.rid,
            [step(&[97], &Value::Null), step(&[98], &finish)],
        );
        assert_eq!("a", reader.chunk().text);
        assert_eq!(expected, reader.error());
        assert_eq!(None, reader.next());
    }
    assert!(running.end().is_empty());
}

#[test]
fn without_a_tokenizer_ids_pass_and_text_is_empty() {
    let running = run(None, 2);
    let mut reader = running.register(8, with_stops(&["a"]));
    running.steps(
        &reader.rid,
        [
            step(&[97], &Value::Null),
            step(&[98, 99], &json!({"type": "stop", "matched": 99})),
        ],
    );
    let chunks = reader.all_chunks();
    assert!(chunks.iter().all(|chunk| chunk.text.is_empty()));
    assert_eq!(
        [vec![97], vec![98]],
        [chunks[0].output_ids.clone(), chunks[1].output_ids.clone()]
    );
}

#[test]
fn detokenize_without_a_tokenizer_is_refused() {
    let running = run(None, 2);
    let mut reader = running.register(8, Options::default());
    let detokenize = Event::Detokenize {
        rid: reader.rid.clone(),
        ids: vec![97],
    };
    running.send(&reader.rid, detokenize);
    let error = reader.error();
    assert_eq!(400, error.status());
    assert!(error.to_string().contains("skip_tokenizer_init"), "{error}");
}

#[test]
fn detokenize_answers_at_the_sink_and_removes_the_entry() {
    let running = byte_level();
    for (skip_special_tokens, expected) in [(true, "a\u{FFFD}"), (false, "a<|im_end|>\u{FFFD}")] {
        let options = Options {
            decode: DecodeOptions {
                skip_special_tokens,
                ..DecodeOptions::default()
            },
            ..with_stops(&["a"])
        };
        let mut reader = running.register(8, options);
        let detokenize = || Event::Detokenize {
            rid: reader.rid.clone(),
            ids: vec![97, 257, 0xC3],
        };
        running.send(&reader.rid, detokenize());
        running.send(&reader.rid, detokenize());
        assert_eq!(
            Some(ResponseEvent::Text(expected.to_owned())),
            reader.next()
        );
        assert_eq!(None, reader.next());
    }
    assert!(running.end().is_empty());
}

fn sample_extras() -> Extras<TokenLogprob> {
    let logprob = |logprob, id| TokenLogprob { logprob, id };
    Extras {
        output: vec![logprob(-0.5, 0xC3), logprob(f32::NAN, 257)],
        input: vec![logprob(f32::NAN, 97), logprob(f32::NEG_INFINITY, -1)],
        output_top: vec![vec![logprob(-0.5, 98)], vec![]],
        input_top: vec![vec![logprob(f32::INFINITY, 99)]],
        output_ids: vec![vec![logprob(-1.0, 9999)]],
        input_ids: vec![vec![]],
        hidden: vec![vec![1.0, f32::NAN]],
    }
}

#[test]
fn log_probabilities_have_text_only_on_request() {
    let extras = sample_extras();
    let running = byte_level();
    for text_in_logprobs in [false, true] {
        let options = Options {
            text_in_logprobs,
            ..Options::default()
        };
        let mut reader = running.register(8, options);
        let mut last = step(&[0xC3, 257], &json!({"type": "stop", "matched": 257}));
        last.extras = Some(Box::new(extras.clone()));
        running.steps(&reader.rid, [last]);
        let given = reader.chunk().extras.unwrap();
        let of = |logprob, id, text: &str| TextLogprob {
            logprob,
            id,
            text: text_in_logprobs.then(|| text.to_owned()),
        };
        assert_eq!(
            vec![
                of(Some(-0.5), 0xC3, "\u{FFFD}"),
                of(None, 257, "<|im_end|>")
            ],
            given.output
        );
        assert_eq!(vec![of(None, 97, "a"), of(None, -1, "")], given.input);
        assert_eq!(
            vec![vec![of(Some(-0.5), 98, "b")], vec![]],
            given.output_top
        );
        assert_eq!(vec![vec![of(None, 99, "c")]], given.input_top);
        assert_eq!(vec![vec![of(Some(-1.0), 9999, "")]], given.output_ids);
        assert_eq!(vec![Vec::<TextLogprob>::new()], given.input_ids);
        assert_eq!("[[1.0, NaN]]", format!("{:?}", given.hidden));
    }
}

#[test]
fn a_decoding_failure_is_an_error() {
    let running = faulty();
    let mut reader = running.register(8, Options::default());
    running.steps(&reader.rid, [step(&[10], &json!({"type": "length"}))]);
    let error = reader.error();
    assert_eq!(
        (500, "detokenizer: on purpose"),
        (error.status(), error.to_string().as_str())
    );
    assert_eq!(None, reader.next());
    // No abort: the scheduler has already ended the request.
    assert!(running.end().is_empty());
}

/// The steps of a scheduler that sends `chunks`, and ends at the first of `stops` in its text, else
/// with `finish`.
fn steps_until_stop(
    tokenizer: &dyn TextTokenizer,
    chunks: &[&[i32]],
    stops: &[String],
    finish: &Value,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut sent = Vec::new();
    for (at, chunk) in chunks.iter().enumerate() {
        sent.extend_from_slice(chunk);
        let text = tokenizer.decode(&sent, true).unwrap();
        let found = stops.iter().find(|stop| text.contains(*stop));
        steps.push(match found {
            Some(stop) => step(chunk, &json!({"type": "stop", "matched": stop})),
            None if at + 1 == chunks.len() => step(chunk, finish),
            None => step(chunk, &Value::Null),
        });
        if found.is_some() {
            break;
        }
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The answer does not depend on the split into steps, on the finish reason, or on whether the
    /// scheduler or the detokenizer finds the stop string first.
    #[test]
    fn concatenated_chunks_are_the_text_up_to_the_stop_string(
        text in "[ab한é✅👨\u{2028}]{0,12}",
        stops in prop::collection::vec("[ab한✅]{1,3}", 0..3),
        kind in 0_usize..3,
        cut_off in 0_usize..3,
        cuts in any::<u64>(),
        no_stop_trim in any::<bool>(),
        ending in 0_usize..3,
        scheduler_sees_stops in any::<bool>(),
    ) {
        let (_, tokenizer) = samples::all().remove(kind.min(1));
        let mut ids = tokenizer.encode(&text).unwrap();
        // May cut a character.
        ids.truncate(ids.len() - cut_off.min(ids.len()));
        let whole = tokenizer.decode(&ids, true).unwrap();
        let expected = first_stop(&whole, &stops, no_stop_trim).0;
        let finish = match ending {
            0 => json!({"type": "length", "length": ids.len()}),
            1 => json!({"type": "stop", "matched": 100_000}),
            _ => json!({"type": "abort", "message": "gone"}),
        };
        if ending == 1 && !no_stop_trim {
            ids.push(100_000);
        }
        let seen_stops: &[String] = if scheduler_sees_stops { &stops } else { &[] };
        let steps = steps_until_stop(&*tokenizer, &cut(&ids, cuts), seen_stops, &finish);
        let running = run(Some(tokenizer), 1);
        let options = Options {
            no_stop_trim,
            stops: Stops::new(&stops),
            ..Options::default()
        };
        let mut reader = running.register(64, options);
        running.steps(&reader.rid, steps);
        let given: String = reader.all_chunks().iter().map(|chunk| chunk.text.as_str()).collect();
        prop_assert_eq!(expected, given);
        running.end();
    }
}
