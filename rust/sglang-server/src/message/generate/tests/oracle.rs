//! Compares `into_requests` with a simple reference implementation on random bodies.

use std::collections::HashSet;

use proptest::{prelude::*, sample::select};
use serde_json::{Map, Value, json};

use super::requests;
use crate::message::{GenerateRequest, Prompt};

/// The part of `column` that belongs to prompt `item`.
fn part(column: &Value, item: usize) -> &Value {
    match column {
        Value::Array(values) => &values[item],
        value => value,
    }
}

/// The value of `field` for prompt `item`, or `default`.
fn value_for(body: &Value, field: &str, item: usize, default: Value) -> Value {
    let value = part(&body[field], item);
    if value.is_null() {
        default
    } else {
        value.clone()
    }
}

/// A request as JSON, with every field that the body has a column for.
pub(super) fn as_json(request: &GenerateRequest) -> Value {
    let prompt = match &request.prompt {
        Prompt::Text(text) => json!(text),
        Prompt::Ids(ids) => json!(ids),
    };
    json!({
        "prompt": prompt,
        "top_k": request.sampling.top_k,
        "seed": request.sampling.sampling_seed,
        "stream": request.stream,
        "return_logprob": request.return_logprob,
        "logprob_start_len": request.logprob_start_len,
        "top_logprobs_num": request.top_logprobs_num,
        "token_ids_logprob": request.token_ids_logprob,
        "return_text_in_logprobs": request.return_text_in_logprobs,
        "return_hidden_states": request.return_hidden_states,
        "bootstrap_host": request.bootstrap.host,
        "bootstrap_port": request.bootstrap.port,
        "bootstrap_room": request.bootstrap.room,
        "bootstrap_pair_key": request.bootstrap.pair_key,
        "decode_tp_size": request.bootstrap.decode_tp_size,
        "routed_dp_rank": request.routed_dp_rank,
        "disagg_prefill_dp_rank": request.disagg_prefill_dp_rank,
    })
}

/// The reference: the expected requests as JSON, computed from the body prompt by prompt.
fn expected(body: &Value, is_list: bool, prompts: usize) -> Vec<Value> {
    let mut all = Vec::new();
    for item in 0..prompts {
        let column = if body["text"].is_null() {
            &body["input_ids"]
        } else {
            &body["text"]
        };
        let prompt = if is_list { &column[item] } else { column };
        let sampling = part(&body["sampling_params"], item);
        let scores = match &body["token_ids_logprob"] {
            Value::Array(rows) if !rows.is_empty() && !rows[0].is_number() => &rows[item],
            flat => flat,
        };
        for choice in 0..sampling["n"].as_i64().unwrap_or(1) {
            let room = match &body["bootstrap_room"] {
                Value::Array(rooms) => rooms[item].as_i64().map(|room| room + choice),
                room => room.as_i64().map(|room| room + all.len() as i64),
            };
            all.push(json!({
                "prompt": prompt,
                "top_k": sampling["top_k"].as_i64().unwrap_or(1 << 30),
                "seed": sampling["sampling_seed"].as_i64().map(|seed| seed + choice),
                "stream": body["stream"].as_bool().unwrap_or(false),
                "return_logprob": value_for(body, "return_logprob", item, json!(false)),
                "logprob_start_len": value_for(body, "logprob_start_len", item, json!(-1)),
                "top_logprobs_num": value_for(body, "top_logprobs_num", item, json!(0)),
                "token_ids_logprob": if *scores == json!([]) { &Value::Null } else { scores },
                "return_text_in_logprobs": body["return_text_in_logprobs"].as_bool().unwrap_or(false),
                "return_hidden_states": value_for(body, "return_hidden_states", item, json!(false)),
                "bootstrap_host": value_for(body, "bootstrap_host", item, Value::Null),
                "bootstrap_port": value_for(body, "bootstrap_port", item, Value::Null),
                "bootstrap_room": room,
                "bootstrap_pair_key": value_for(body, "bootstrap_pair_key", item, Value::Null),
                "decode_tp_size": value_for(body, "decode_tp_size", item, Value::Null),
                "routed_dp_rank": body["routed_dp_rank"],
                "disagg_prefill_dp_rank": body["disagg_prefill_dp_rank"],
            }));
        }
    }
    all
}

/// Null, one of `values`, or a list of `prompts` elements that are null or one of `values`.
fn column(values: Vec<Value>, prompts: usize) -> BoxedStrategy<Value> {
    let one = select(values);
    let nullable = prop_oneof![1 => Just(Value::Null), 3 => one.clone()];
    let list = prop::collection::vec(nullable, prompts).prop_map(Value::Array);
    prop_oneof![Just(Value::Null), one, list].boxed()
}

/// A list of `prompts` values, or a single value if `is_list` is false.
fn prompt_column(
    value: BoxedStrategy<Value>,
    is_list: bool,
    prompts: usize,
) -> BoxedStrategy<Value> {
    if is_list {
        prop::collection::vec(value, prompts)
            .prop_map(Value::Array)
            .boxed()
    } else {
        value
    }
}

/// A valid body, whether its prompts are a list, and the number of prompts.
///
/// Long because it lists the values of every field.
fn body() -> impl Strategy<Value = (Value, bool, usize)> {
    let size = prop_oneof![
        Just((false, 1)),
        (1_usize..5).prop_map(|prompts| (true, prompts))
    ];
    size.prop_flat_map(|(is_list, prompts)| {
        let text = any::<String>().prop_map(Value::from).boxed();
        let ids = prop::collection::vec(any::<i32>(), 1..4).prop_map(Value::from).boxed();
        let prompt = prop_oneof![
            prompt_column(text, is_list, prompts).prop_map(|text| ("text", text)),
            prompt_column(ids, is_list, prompts).prop_map(|ids| ("input_ids", ids)),
        ];
        let flags = || vec![json!(true), json!(false)];
        let sampling = vec![
            json!({}),
            json!({"n": 2}),
            json!({"n": 3, "sampling_seed": 40, "top_k": 5}),
            json!({"top_k": 9}),
        ];
        let scores = vec![json!([]), json!([1]), json!([2, 3])];
        let flat = select(scores.clone());
        let rows = prop::collection::vec(select(scores), prompts).prop_map(Value::Array);
        let spaced = (0..prompts).map(|item| json!(10 * item)).collect::<Vec<_>>();
        let columns = (
            (prompt, column(sampling, prompts), select(vec![Value::Null, json!(true)]), column(flags(), prompts)),
            (column(vec![json!(0), json!(-1), json!(7)], prompts), column(vec![json!(0), json!(5)], prompts)),
            (prop_oneof![Just(Value::Null), flat, rows], select(flags()), column(flags(), prompts)),
            (column(vec![json!("h"), json!("i")], prompts), column(vec![json!(1), json!(2)], prompts)),
            (select(vec![Value::Null, json!(100), Value::Array(spaced)]), column(vec![json!("k")], prompts)),
            (column(vec![json!(4)], prompts), select(vec![Value::Null, json!(3)])),
        );
        columns.prop_map(move |columns| {
            let (a, b, c, d, e, f) = columns;
            let mut body = json!({
                "sampling_params": a.1, "stream": a.2, "return_logprob": a.3,
                "logprob_start_len": b.0, "top_logprobs_num": b.1,
                "token_ids_logprob": c.0, "return_text_in_logprobs": c.1, "return_hidden_states": c.2,
                "bootstrap_host": d.0, "bootstrap_port": d.1,
                "bootstrap_room": e.0, "bootstrap_pair_key": e.1,
                "decode_tp_size": f.0, "routed_dp_rank": f.1, "disagg_prefill_dp_rank": f.1,
            });
            body[a.0.0] = a.0.1;
            (body, is_list, prompts)
        })
    })
}

/// `body` without its null fields, which must give the same requests.
fn without_nulls(body: &Value) -> Value {
    let fields = body.as_object().unwrap().iter();
    let set = fields.filter(|(_, value)| !value.is_null());
    Value::Object(
        set.map(|(name, value)| (name.clone(), value.clone()))
            .collect::<Map<_, _>>(),
    )
}

proptest! {
    #[test]
    fn requests_match_the_reference((body, is_list, prompts) in body()) {
        let expected = expected(&body, is_list, prompts);
        let is_list = is_list || expected.len() > prompts;
        for body in [without_nulls(&body), body] {
            let (requests, list) = requests(&serde_json::to_vec(&body).unwrap()).unwrap();
            prop_assert_eq!(is_list, list);
            let got: Vec<Value> = requests.iter().map(as_json).collect();
            prop_assert_eq!(&expected, &got);

            let names: HashSet<&str> = requests.iter().map(|request| request.rid.as_str()).collect();
            prop_assert_eq!(requests.len(), names.len());
            let by_prompt = requests.chunk_by(|a, b| a.rid.client_facing() == b.rid.client_facing());
            prop_assert_eq!(prompts, by_prompt.count());
        }
    }
}
