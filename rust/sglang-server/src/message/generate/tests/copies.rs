//! The limit on copies of values that several requests of a call share.

use serde_json::{Map, Value, json};

use super::{super::column::Column, BatchLimit, GenerateBody, refusal};

fn object(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap()
}

fn mib(count: usize) -> String {
    "x".repeat(count << 20)
}

fn one_prompt(text: &str) -> GenerateBody {
    GenerateBody {
        text: Column::One(text.to_owned()),
        ..GenerateBody::default()
    }
}

fn four_prompts() -> GenerateBody {
    GenerateBody {
        text: Column::Many(vec![Some("a".to_owned()); 4]),
        ..GenerateBody::default()
    }
}

fn with_sampling(body: GenerateBody, params: Value) -> GenerateBody {
    GenerateBody {
        sampling_params: Column::One(object(params)),
        ..body
    }
}

/// Checks the number of requests, or the refused field and the number of copies it needs.
fn check_copies(name: &str, body: GenerateBody, expected: Result<usize, (&str, usize)>) {
    let got = body.into_requests(BatchLimit::default());
    let got = got.map(|(requests, _)| requests.len());
    let expected = expected.map_err(|(field, copies)| {
        let rule = format!(
            "is copied for {copies} requests, and all copies of a call may take 64 MiB; send several calls"
        );
        refusal(field, &rule)
    });
    assert_eq!(expected, got, "{name}");
}

/// A value that all prompts share is copied for each; a list has one value per prompt already.
#[test]
fn copies_for_several_prompts_take_at_most_64_mib() {
    let host = |body: GenerateBody, host: Column<String>| GenerateBody {
        bootstrap_host: host,
        ..body
    };
    let host_and_key = |mib_each: usize| GenerateBody {
        bootstrap_pair_key: Column::One(mib(mib_each)),
        ..host(four_prompts(), Column::One(mib(mib_each)))
    };
    let scores = |count: usize| GenerateBody {
        token_ids_logprob: Column::One(vec![1; count]),
        ..four_prompts()
    };
    let schema = |bytes: usize| json!({"json_schema": "x".repeat(bytes)});
    // Each byte of JSON is charged as 8 bytes.
    let longest_schema = (64 << 20) / 8 / 4 - r#"{"json_schema":""}"#.len();
    let preferred = GenerateBody {
        preferred_sampling: object(json!({"regex": "x".repeat(3 << 20)})),
        ..with_sampling(four_prompts(), json!({}))
    };
    #[rustfmt::skip]
    let cases = vec![
        ("shared host at the limit",   host(four_prompts(), Column::One(mib(16))),                 Ok(4)),
        ("shared host above",          host(four_prompts(), Column::One(mib(17))),                 Err(("bootstrap_host", 4))),
        ("one prompt is not copied",   host(one_prompt("a"), Column::One(mib(65))),                Ok(1)),
        ("a list is not copied",       host(four_prompts(), Column::Many(vec![Some(mib(17)); 4])), Ok(4)),
        ("two fields add up",          host_and_key(9),                                            Err(("bootstrap_pair_key", 4))),
        ("token ids at the limit",     scores(4 << 20),                                            Ok(4)),
        ("token ids above",            scores((4 << 20) + 1),                                      Err(("token_ids_logprob", 4))),
        ("sampling at the limit",      with_sampling(four_prompts(), schema(longest_schema)),      Ok(4)),
        ("sampling above",             with_sampling(four_prompts(), schema(longest_schema + 1)),  Err(("sampling_params", 4))),
        ("sampling of one prompt",     with_sampling(one_prompt("a"), schema(9 << 20)),            Ok(1)),
        ("preferred parameters count", preferred,                                                  Err(("sampling_params", 4))),
    ];
    for (name, body, expected) in cases {
        check_copies(name, body, expected);
    }
}

/// The first answer needs no copy.
#[test]
fn copies_for_several_answers_take_at_most_64_mib() {
    let answers = |text: &str, n: i64| with_sampling(one_prompt(text), json!({"n": n}));
    let long_host = GenerateBody {
        bootstrap_host: Column::One(mib(33)),
        ..answers("a", 3)
    };
    let long_scores = GenerateBody {
        token_ids_logprob: Column::One(vec![1; 9 << 20]),
        ..answers("a", 3)
    };
    let long_pattern = json!({"n": 3, "regex": "x".repeat(5 << 20)});
    #[rustfmt::skip]
    let cases = vec![
        ("prompt below the limit", answers(&mib(31), 3),                         Ok(3)),
        ("prompt above",           answers(&mib(31), 4),                         Err(("sampling_params.n", 3))),
        ("host above",             long_host,                                    Err(("sampling_params.n", 2))),
        ("token ids above",        long_scores,                                  Err(("sampling_params.n", 2))),
        ("sampling above",         with_sampling(one_prompt("a"), long_pattern), Err(("sampling_params.n", 2))),
    ];
    for (name, body, expected) in cases {
        check_copies(name, body, expected);
    }
}
