//! `into_requests`: how columns become scheduler requests.

use serde_json::{Map, Value, json};

use super::{BatchLimit, GenerateBody, oracle::as_json, refusal};
use crate::{
    error::RequestError,
    message::{GenerateRequest, Prompt, SamplingParams},
};

type Answer = Result<(Vec<GenerateRequest>, bool), RequestError>;

fn limited(body: &Value, limit: i64) -> Answer {
    let body = GenerateBody::from_json(&serde_json::to_vec(body).unwrap())?;
    body.into_requests(BatchLimit::new(limit))
}

fn requests(body: &Value) -> Answer {
    limited(body, 4096)
}

/// The result of `get` for each request.
fn each<T>(body: &Value, get: impl Fn(&GenerateRequest) -> T) -> Vec<T> {
    requests(body).unwrap().0.iter().map(get).collect()
}

fn rids(body: &Value) -> Vec<String> {
    each(body, |request| request.rid.client_facing().to_owned())
}

fn rooms(body: &Value) -> Vec<Option<i64>> {
    each(body, |request| request.bootstrap.room)
}

#[test]
fn a_prompt_alone_gets_all_defaults() {
    let (requests, is_list) = requests(&json!({"text": "a"})).unwrap();
    let [request] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert!(!is_list);
    assert_eq!(32, request.rid.as_str().len());
    let expected = GenerateRequest {
        rid: request.rid.clone(),
        prompt: Prompt::Text("a".into()),
        sampling: SamplingParams::default(),
        stream: false,
        return_logprob: false,
        logprob_start_len: -1,
        top_logprobs_num: 0,
        token_ids_logprob: None,
        return_text_in_logprobs: false,
        return_hidden_states: false,
        bootstrap: crate::message::request::Bootstrap::default(),
        routed_dp_rank: None,
        disagg_prefill_dp_rank: None,
    };
    assert_eq!(expected, *request);
}

#[test]
fn a_list_of_prompts_or_several_answers_give_a_list() {
    #[rustfmt::skip]
    let cases = [
        (json!({"text": "a"}),                                               1, false),
        (json!({"input_ids": [1, 2]}),                                       1, false),
        (json!({"text": ["a"]}),                                             1, true),
        (json!({"input_ids": [[1, 2]]}),                                     1, true),
        (json!({"text": ["a", "b"]}),                                        2, true),
        (json!({"text": "a", "sampling_params": {"n": 1}}),                  1, false),
        (json!({"text": "a", "sampling_params": {"n": 3}}),                  3, true),
        (json!({"text": "a", "sampling_params": [{"n": 3}]}),                3, true),
        (json!({"text": ["a", "b"], "sampling_params": {"n": 3}}),           6, true),
        (json!({"text": ["a", "b"], "sampling_params": [{"n": 3}, {}]}),     4, true),
        (json!({"text": "", "input_ids": null}),                             1, false),
    ];
    for (body, count, list) in cases {
        let (requests, is_list) = requests(&body).unwrap();
        assert_eq!((count, list), (requests.len(), is_list), "{body}");
        assert!(
            requests.iter().all(|request| request.sampling.n == 1),
            "{body}"
        );
    }
}

/// A single value applies to both prompts, a list has one value per prompt, null is the default.
#[test]
fn columns_are_distributed_to_prompts() {
    #[rustfmt::skip]
    let cases = [
        ("bootstrap_host",         json!("h"),                    "bootstrap_host",         json!(["h", "h"])),
        ("bootstrap_host",         json!(["h", null]),            "bootstrap_host",         json!(["h", null])),
        ("token_ids_logprob",      json!([7]),                    "token_ids_logprob",      json!([[7], [7]])),
        ("token_ids_logprob",      json!([[], [7]]),              "token_ids_logprob",      json!([null, [7]])),
        ("token_ids_logprob",      json!([null, [7]]),            "token_ids_logprob",      json!([null, [7]])),
        ("token_ids_logprob",      json!([]),                     "token_ids_logprob",      json!([null, null])),
        ("return_logprob",         json!([true, null]),           "return_logprob",         json!([true, false])),
        ("logprob_start_len",      json!([null, 3]),              "logprob_start_len",      json!([-1, 3])),
        ("top_logprobs_num",       json!([2, null]),              "top_logprobs_num",       json!([2, 0])),
        ("sampling_params",        json!({"top_k": 5}),           "top_k",                  json!([5, 5])),
        ("sampling_params",        json!([{"top_k": 5}, null]),   "top_k",                  json!([5, 1 << 30])),
        ("routed_dp_rank",         json!(3),                      "routed_dp_rank",         json!([3, 3])),
        ("disagg_prefill_dp_rank", json!(0),                      "disagg_prefill_dp_rank", json!([0, 0])),
    ];
    for (field, value, shown_as, expected) in cases {
        let body = json!({"text": ["a", "b"], field: value});
        let got = each(&body, |request| as_json(request)[shown_as].clone());
        assert_eq!(expected, Value::from(got), "{body}");
    }
}

#[test]
fn client_rids_of_requests() {
    #[rustfmt::skip]
    let cases: Vec<(Value, &[&str])> = vec![
        (json!({"text": "a", "rid": "x"}),                                              &["x"]),
        (json!({"text": "a", "rid": ""}),                                               &[""]),
        (json!({"text": ["a"], "rid": "x"}),                                            &["x_0"]),
        (json!({"text": ["a", "b"], "rid": "x"}),                                       &["x_0", "x_1"]),
        (json!({"text": ["a", "b"], "rid": ["x", "y"]}),                                &["x", "y"]),
        (json!({"text": "a", "rid": "x", "sampling_params": {"n": 2}}),                 &["x", "x"]),
        (json!({"text": ["a", "b"], "rid": ["x_1", "x"], "sampling_params": {"n": 2}}), &["x_1", "x_1", "x", "x"]),
    ];
    for (body, expected) in cases {
        assert_eq!(expected, rids(&body), "{body}");
    }
    let long = "x".repeat(128);
    let got = rids(&json!({"text": "a", "rid": long.as_str()}));
    assert_eq!(vec![long], got);
}

#[test]
fn a_generated_rid_is_shared_by_the_answers_to_one_prompt() {
    let minted =
        rids(&json!({"text": ["a", "b"], "rid": ["x", null], "sampling_params": {"n": 2}}));
    let [x, other_x, first, second] = &minted[..] else {
        panic!("{minted:?}");
    };
    assert_eq!(("x", "x"), (x.as_str(), other_x.as_str()));
    assert_eq!(32, first.len());
    assert_eq!(first, second);
    let minted = rids(&json!({"text": ["a", "b"]}));
    assert_ne!(minted[0], minted[1]);
}

/// Seeds and rooms wrap around at the limits of `i64`.
#[test]
fn answers_get_consecutive_seeds_and_rooms() {
    let seeds = |request: &GenerateRequest| request.sampling.sampling_seed;
    let seeded =
        |seed: i64| json!({"text": ["a", "b"], "sampling_params": {"n": 2, "sampling_seed": seed}});
    assert_eq!(
        [Some(5), Some(6), Some(5), Some(6)],
        each(&seeded(5), seeds)[..]
    );
    assert_eq!(
        [Some(i64::MAX), Some(i64::MIN)],
        each(&seeded(i64::MAX), seeds)[..2]
    );
    assert_eq!(
        [None, None],
        each(&json!({"text": "a", "sampling_params": {"n": 2}}), seeds)[..]
    );

    #[rustfmt::skip]
    let cases: Vec<(Value, Value, Value, &[Option<i64>])> = vec![
        (json!("a"),        json!({}),                    json!(7),          &[Some(7)]),
        (json!("a"),        json!({"n": 3}),              json!(7),          &[Some(7), Some(8), Some(9)]),
        (json!(["a", "b"]), json!({}),                    json!(7),          &[Some(7), Some(8)]),
        (json!(["a", "b"]), json!({"n": 2}),              json!(7),          &[Some(7), Some(8), Some(9), Some(10)]),
        (json!(["a", "b"]), json!([{"n": 2}, {}]),        json!(7),          &[Some(7), Some(8), Some(9)]),
        (json!(["a", "b"]), json!({}),                    json!(i64::MAX),   &[Some(i64::MAX), Some(i64::MIN)]),
        (json!(["a", "b"]), json!({}),                    json!([4, 4]),     &[Some(4), Some(4)]),
        (json!(["a", "b"]), json!({"n": 2}),              json!([4, 6]),     &[Some(4), Some(5), Some(6), Some(7)]),
        (json!(["a", "b"]), json!({"n": 2}),              json!([null, 6]),  &[None, None, Some(6), Some(7)]),
    ];
    for (text, sampling, room, expected) in cases {
        let body = json!({"text": text, "sampling_params": sampling, "bootstrap_room": room});
        assert_eq!(expected, rooms(&body), "{body}");
    }
}

#[test]
fn invalid_bodies_are_refused_by_field() {
    let long = "x".repeat(129);
    #[rustfmt::skip]
    let cases: Vec<(&str, Value, &str, &str)> = vec![
        ("text and input_ids",               json!({"text": "a", "input_ids": [1]}),                     "input_ids",            "and `text` are both prompts; send one of them"),
        ("empty input_ids",                  json!({"input_ids": []}),                                   "input_ids",            "is empty; a prompt has at least one token"),
        ("empty prompt in a batch",          json!({"input_ids": [[1], []]}),                            "input_ids[1]",         "is empty; a prompt has at least one token"),
        ("empty prompt in a batch of one",   json!({"input_ids": [[]]}),                                 "input_ids[0]",         "is empty; a prompt has at least one token"),
        ("empty list of prompts",            json!({"text": []}),                                        "text",                 "is an empty list; send at least one prompt"),
        ("null in texts",                    json!({"text": ["a", null]}),                               "text[1]",              "must be a string, not null"),
        ("null in input_ids",                json!({"input_ids": [[1], null]}),                          "input_ids[1]",         "must be a list of integers, not null"),
        ("null as first of input_ids",       json!({"input_ids": [null]}),                               "input_ids[0]",         "must be a list of integers, not null"),
        ("rid list for one prompt",          json!({"text": "a", "rid": ["x"]}),                         "rid",                  "is a list, but there is one prompt; send a string"),
        ("duplicate rid",                    json!({"text": ["a", "b", "c"], "rid": ["x", "y", "x"]}),   "rid[2]",               "repeats the id of another prompt of this call"),
        ("rid too long",                     json!({"text": "a", "rid": long}),                          "rid",                  "is 129 bytes long; at most 128 are allowed"),
        ("rid too long in bytes",            json!({"text": "a", "rid": "é".repeat(65)}),               "rid",                  "is 130 bytes long; at most 128 are allowed"),
        ("too long with a two-digit suffix", json!({"text": vec!["a"; 11], "rid": long[3..]}),           "rid",                  "is 129 bytes long; at most 128 are allowed"),
        ("too long rid in a list",           json!({"text": ["a", "b"], "rid": ["x", long]}),            "rid[1]",               "is 129 bytes long; at most 128 are allowed"),
        ("too long with a suffix",           json!({"text": ["a"], "rid": long[2..]}),                   "rid",                  "is 129 bytes long; at most 128 are allowed"),
        ("health check prefix",              json!({"text": "a", "rid": "HEALTH_CHECK_1"}),              "rid",                  "begins with `HEALTH_CHECK_`, which is reserved for health checks"),
        ("logprob_start_len below -1",       json!({"text": "a", "logprob_start_len": -2}),              "logprob_start_len",    "must be at least -1, not -2"),
        ("negative top_logprobs_num",        json!({"text": ["a", "b"], "top_logprobs_num": [null, -1]}), "top_logprobs_num[1]", "must be at least 0, not -1"),
        ("invalid sampling parameter",       json!({"text": "a", "sampling_params": {"n": 0}}),          "sampling_params.n",    "must be from 1 to 128, not 0"),
        ("invalid parameter in a list",      json!({"text": ["a", "b"], "sampling_params": [{}, {"m": 1}]}), "sampling_params[1].m", "is not a sampling parameter"),
        ("rooms overlap",                    json!({"text": ["a", "b"], "bootstrap_room": [4, 5], "sampling_params": {"n": 2}}), "bootstrap_room", "gives room 5 to two answers; rooms of prompts must be at least `n` apart"),
        ("top-level n is ignored",           json!({"text": "a", "n": 2, "sampling_params": {"n": 2.0}}), "sampling_params.n",   "must be an integer of at most 64 bits, not 2.0"),
    ];
    for (name, body, field, rule) in cases {
        assert_eq!(Err(refusal(field, rule)), requests(&body), "{name}");
    }
    let message = "there is no prompt; send `text` or `input_ids`";
    assert_eq!(Err(RequestError::invalid(message)), requests(&json!({})));
}

#[test]
fn a_list_of_the_wrong_length_is_refused() {
    let (one, two) = (json!("a"), json!(["a", "b"]));
    #[rustfmt::skip]
    let cases = [
        (&one, "sampling_params",      json!([]),           0, 1),
        (&one, "sampling_params",      json!([{}, {}]),     2, 1),
        (&two, "sampling_params",      json!([{}]),         1, 2),
        (&two, "rid",                  json!(["x"]),        1, 2),
        (&two, "return_logprob",       json!([true]),       1, 2),
        (&one, "logprob_start_len",    json!([1, 2]),       2, 1),
        (&one, "top_logprobs_num",     json!([1, 2]),       2, 1),
        (&two, "token_ids_logprob",    json!([[1]]),        1, 2),
        (&one, "return_hidden_states", json!([true, true]), 2, 1),
        (&two, "bootstrap_host",       json!(["", "", ""]),     3, 2),
        (&two, "bootstrap_port",       json!([1]),          1, 2),
        (&two, "bootstrap_room",       json!([1, 2, 3]),    3, 2),
        (&two, "bootstrap_pair_key",   json!([null]),       1, 2),
        (&two, "decode_tp_size",       json!([]),           0, 2),
    ];
    for (text, field, value, elements, prompts) in cases {
        let rule = format!("has {elements} elements, which does not match batch size {prompts}");
        let body = json!({"text": text, field: value});
        assert_eq!(Err(refusal(field, &rule)), requests(&body), "{body}");
    }
}

#[test]
fn calls_over_the_batch_limit_are_refused() {
    let texts = |count: usize| vec!["a"; count];
    let rule = |asked, most| {
        format!(
            "asks for {asked} requests in one call; at most {most} are allowed, send several calls"
        )
    };
    #[rustfmt::skip]
    let cases = [
        ("at the limit",                   json!({"text": texts(4)}),                                     4,  Ok(4)),
        ("above the limit",                json!({"text": texts(5)}),                                     4,  Err(("text", 5))),
        ("input_ids above the limit",      json!({"input_ids": vec![[1]; 5]}),                            4,  Err(("input_ids", 5))),
        ("checked before empty prompts",   json!({"input_ids": vec![[0; 0]; 5]}),                         4,  Err(("input_ids", 5))),
        ("no limit",                       json!({"text": texts(5000)}),                                  -1, Ok(5000)),
        ("answers at the limit",           json!({"text": texts(2), "sampling_params": {"n": 2}}),        4,  Ok(4)),
        ("too many answers",               json!({"text": texts(2), "sampling_params": {"n": 3}}),        4,  Err(("sampling_params.n", 6))),
        ("too many answers to one prompt", json!({"text": "a", "sampling_params": {"n": 5}}),             4,  Err(("sampling_params.n", 5))),
        ("n in a list",                    json!({"text": texts(2), "sampling_params": [{"n": 4}, {}]}),  4,  Err(("sampling_params.n", 5))),
        ("one prompt is never limited",    json!({"text": "a"}),                                          0,  Ok(1)),
    ];
    for (name, body, limit, expected) in cases {
        let got = limited(&body, limit).map(|(requests, _)| requests.len());
        let expected = expected.map_err(|(field, asked)| refusal(field, &rule(asked, limit)));
        assert_eq!(expected, got, "{name}");
    }
}

#[test]
fn preferred_sampling_applies_to_every_form_of_sampling_params() {
    let preferred: Map<String, Value> =
        serde_json::from_value(json!({"top_p": 0.5, "n": 2})).unwrap();
    #[rustfmt::skip]
    let cases: Vec<(Value, &[f64])> = vec![
        (json!({"text": "a"}),                                                             &[0.5, 0.5]),
        (json!({"text": "a", "sampling_params": {"top_p": 0.1}}),                          &[0.1, 0.1]),
        (json!({"text": ["a", "b"], "sampling_params": [{"top_p": 0.1, "n": 1}, {}]}),     &[0.1, 0.5, 0.5]),
        (json!({"text": ["a", "b"], "sampling_params": [{"n": 1}, null]}),                 &[0.5, 0.5, 0.5]),
    ];
    for (body, expected) in cases {
        let mut parsed = GenerateBody::from_json(&serde_json::to_vec(&body).unwrap()).unwrap();
        parsed.apply_preferred_sampling(&preferred);
        let (requests, _) = parsed.into_requests(BatchLimit::default()).unwrap();
        let got: Vec<f64> = requests
            .iter()
            .map(|request| request.sampling.top_p)
            .collect();
        assert_eq!(expected, got, "{body}");
    }
}
