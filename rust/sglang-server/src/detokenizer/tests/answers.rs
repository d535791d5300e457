//! What steps of the scheduler become.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    super::{DecodeOptions, Event, Options, Stops},
    bytes, faulty, reason, run, step, stopping,
    text::{cut, first_stop},
};
use crate::{
    error::RequestError,
    message::{
        Chunk, Extras, ResponseEvent,
        response::{TextLogprob, TokenLogprob},
    },
    tokenizer::samples,
};

#[test]
fn steps_become_chunks() {
    let running = bytes();
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
    assert_eq!(expected, reader.all()[..]);
    assert!(running.end().is_empty());
}

/// A token that stopped the generation goes, any other stays.
#[test]
fn what_is_trimmed_at_the_end() {
    let stop = |matched: Value| json!({"type": "stop", "matched": matched});
    #[rustfmt::skip]
    let cases = [
        // name, tokens, why it ended, no_stop_trim, tokens for the client, text
        ("length keeps all",        vec![97, 98],  json!({"type": "length", "length": 2}), false, vec![97, 98], "ab"),
        ("length keeps its end",    vec![97, 257], json!({"type": "length", "length": 2}), false, vec![97, 257], "a"),
        ("a token",                 vec![97, 98],  stop(json!(98)),  false, vec![97],      "a"),
        ("a token, kept",           vec![97, 98],  stop(json!(98)),  true,  vec![97, 98],  "ab"),
        ("a special token",         vec![97, 257], stop(json!(257)), false, vec![97],      "a"),
        ("the only token",          vec![257],     stop(json!(257)), false, vec![],        ""),
        ("token 0 is none",         vec![97, 0],   stop(json!(0)),   false, vec![97, 0],   "a\0"),
        ("a token that came before",vec![],        stop(json!(98)),  false, vec![],        ""),
        ("another token",           vec![97, 98],  stop(json!(99)),  false, vec![97, 98],  "ab"),
        ("no match",                vec![97],      stop(Value::Null),false, vec![97],      "a"),
        ("a string",                vec![97, 98],  stop(json!("b")), false, vec![97, 98],  "a"),
        ("a string, kept",          vec![97, 98, 99], stop(json!("b")), true, vec![97, 98, 99], "ab"),
        ("an abort",                vec![97],      json!({"type": "abort", "message": "no"}), false, vec![97], "a"),
        ("of tomorrow",             vec![97],      json!({"type": "of tomorrow", "x": 1}), false, vec![97], "a"),
        ("half a character",        vec![97, 0xC3],json!({"type": "length", "length": 2}), false, vec![97, 0xC3], "a\u{FFFD}"),
    ];
    let running = bytes();
    for (name, ids, finish, no_stop_trim, expected, text) in cases {
        let options = Options {
            no_stop_trim,
            ..Options::default()
        };
        let mut reader = running.register(8, options);
        running.steps(&reader.rid, [step(&ids, &finish)]);
        let [chunk] = &reader.all()[..] else {
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
fn a_stop_string_that_the_scheduler_does_not_see_ends_the_answer_too() {
    for (no_stop_trim, expected) in [(false, ["al", "pha", ""]), (true, ["al", "pha", "!!"])] {
        let running = bytes();
        let options = Options {
            no_stop_trim,
            ..stopping(&["!!"])
        };
        let mut reader = running.register(8, options);
        let text = |text: &str| text.bytes().map(i32::from).collect::<Vec<i32>>();
        let steps =
            ["al", "pha!", "! more", "and more"].map(|piece| step(&text(piece), &Value::Null));
        running.steps(&reader.rid, steps);
        let chunks = reader.all();
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

/// The last step may complete a stop string before the scheduler looks: then that is why
/// the text ends, unless the scheduler names a stop string or has given up.
#[test]
fn a_stop_string_in_the_last_step_is_why_the_text_ends() {
    let ours = json!({"type": "stop", "matched": "!!"});
    let abort = json!({"type": "abort", "message": "no"});
    #[rustfmt::skip]
    let cases = [
        ("by length",         "a!! b", json!({"type": "length", "length": 5}),         &ours),
        ("by token",          "a!! b", json!({"type": "stop", "matched": 7}),          &ours),
        ("scheduler saw it",  "a!!",   ours.clone(),                                   &ours),
        ("given up",          "a!! b", abort.clone(),                                  &abort),
    ];
    for (name, text, finish, expected) in cases {
        let running = bytes();
        let mut reader = running.register(8, stopping(&["!!"]));
        let ids: Vec<i32> = text.bytes().map(i32::from).collect();
        running.steps(&reader.rid, [step(&ids, &finish)]);
        let chunks = reader.all();
        assert_eq!("a", chunks[0].text, "{name}");
        assert_eq!(reason(expected), chunks[0].finish, "{name}");
        assert!(
            running.end().is_empty(),
            "{name}: the scheduler has ended already"
        );
    }
}

#[test]
fn an_abort_with_a_status_is_an_error() {
    let running = bytes();
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
    let mut reader = running.register(8, stopping(&["a"]));
    running.steps(
        &reader.rid,
        [
            step(&[97], &Value::Null),
            step(&[98, 99], &json!({"type": "stop", "matched": 99})),
        ],
    );
    let chunks = reader.all();
    assert!(chunks.iter().all(|chunk| chunk.text.is_empty()));
    assert_eq!(
        [vec![97], vec![98]],
        [chunks[0].output_ids.clone(), chunks[1].output_ids.clone()]
    );
}

#[test]
fn decode_once_rejects_skip_mode() {
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
fn decode_answers_via_registered_sink_and_consumes_the_entry() {
    let running = bytes();
    for (skip_special_tokens, expected) in [(true, "a\u{FFFD}"), (false, "a<|im_end|>\u{FFFD}")] {
        let options = Options {
            decode: DecodeOptions {
                skip_special_tokens,
                ..DecodeOptions::default()
            },
            ..stopping(&["a"])
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

#[test]
fn log_probabilities_come_with_text_where_it_is_asked_for() {
    let of = |logprob, id| TokenLogprob { logprob, id };
    let extras = Extras {
        output: vec![of(-0.5, 0xC3), of(f32::NAN, 257)],
        input: vec![of(f32::NAN, 97), of(f32::NEG_INFINITY, -1)],
        output_top: vec![vec![of(-0.5, 98)], vec![]],
        input_top: vec![vec![of(f32::INFINITY, 99)]],
        output_ids: vec![vec![of(-1.0, 9999)]],
        input_ids: vec![vec![]],
        hidden: vec![vec![1.0, f32::NAN]],
    };
    let running = bytes();
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
fn tokens_that_cannot_be_decoded_are_an_error() {
    let running = faulty();
    let mut reader = running.register(8, Options::default());
    running.steps(&reader.rid, [step(&[10], &json!({"type": "length"}))]);
    let error = reader.error();
    assert_eq!(
        (500, "detokenizer: on purpose"),
        (error.status(), error.to_string().as_str())
    );
    assert_eq!(None, reader.next());
    // The scheduler had ended it already.
    assert!(running.end().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// An answer as a client adds it up: text up to the stop string, however tokens came
    /// in steps, whichever way it ended, and whoever saw the stop string first.
    #[test]
    fn an_answer_is_the_whole_text_up_to_its_stop(
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
        // Perhaps in the middle of a character.
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
        let mut steps = Vec::new();
        let mut taken = 0;
        for chunk in cut(&ids, cuts) {
            taken += chunk.len();
            let so_far = tokenizer.decode(&ids[..taken], true).unwrap();
            let seen = stops.iter().find(|stop| scheduler_sees_stops && so_far.contains(*stop));
            let finish = match seen {
                Some(stop) => &json!({"type": "stop", "matched": stop}),
                None if taken == ids.len() => &finish,
                None => &Value::Null,
            };
            steps.push(step(chunk, finish));
            if seen.is_some() {
                break;
            }
        }
        let running = run(Some(tokenizer), 1);
        let options = Options {
            no_stop_trim,
            stops: Stops::new(&stops),
            ..Options::default()
        };
        let mut reader = running.register(64, options);
        running.steps(&reader.rid, steps);
        let given: String = reader.all().iter().map(|chunk| chunk.text.as_str()).collect();
        prop_assert_eq!(expected, given);
        running.end();
    }
}
