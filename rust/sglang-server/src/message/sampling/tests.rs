use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::SamplingParams;
use crate::{error::RequestError, message::json::any_json};

/// The parameters that a client may set.
const NAMES: [&str; 25] = [
    "max_new_tokens",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_new_tokens",
    "n",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
    "stream_interval",
    "logit_bias",
    "sampling_seed",
    "custom_params",
];

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn read_with_preferred(value: &Value, preferred: &Value) -> Result<SamplingParams, RequestError> {
    SamplingParams::from_json(object(value), &object(preferred), "sampling_params")
}

fn read(value: &Value) -> Result<SamplingParams, RequestError> {
    read_with_preferred(value, &json!({}))
}

fn params(change: impl FnOnce(&mut SamplingParams)) -> SamplingParams {
    let mut params = SamplingParams::default();
    change(&mut params);
    params
}

/// Long because it is a table with one row per case.
#[test]
fn valid_parameters_are_read_and_normalised() {
    #[rustfmt::skip]
    let cases: Vec<(&str, Value, SamplingParams)> = vec![
        ("empty object",                    json!({}),                                   params(|_| ())),
        ("max_new_tokens",                  json!({"max_new_tokens": 7}),                params(|p| p.max_new_tokens = Some(7))),
        ("max_new_tokens 0",                json!({"max_new_tokens": 0}),                params(|p| p.max_new_tokens = Some(0))),
        ("max_new_tokens null",             json!({"max_new_tokens": null}),             params(|p| p.max_new_tokens = None)),
        ("no limit, with min_new_tokens",   json!({"max_new_tokens": null, "min_new_tokens": 999}), params(|p| { p.max_new_tokens = None; p.min_new_tokens = 999; })),
        ("min_new_tokens at default limit", json!({"min_new_tokens": 128}),              params(|p| p.min_new_tokens = 128)),
        ("integer for a float",             json!({"temperature": 2}),                   params(|p| p.temperature = 2.0)),
        ("large integer for a float",       json!({"temperature": u64::MAX}),           params(|p| p.temperature = 18_446_744_073_709_551_615.0)),
        ("temperature 0 is greedy",         json!({"temperature": 0}),                   params(|p| p.top_k = 1)),
        ("greedy overrides top_k",          json!({"temperature": 0.0, "top_k": 50}),    params(|p| p.top_k = 1)),
        ("just below greedy limit",         json!({"temperature": 9.9e-7}),              params(|p| p.top_k = 1)),
        ("at the greedy limit",             json!({"temperature": 1e-6}),                params(|p| p.temperature = 1e-6)),
        ("top_k -1 means all",              json!({"top_k": -1}),                        params(|_| ())),
        ("large top_k means all",           json!({"top_k": 1_i64 << 40}),               params(|_| ())),
        ("top_k",                           json!({"top_k": 1}),                         params(|p| p.top_k = 1)),
        ("top_p at upper bound",            json!({"top_p": 1}),                         params(|_| ())),
        ("top_p",                           json!({"top_p": 1e-9}),                      params(|p| p.top_p = 1e-9)),
        ("min_p at upper bound",            json!({"min_p": 1}),                         params(|p| p.min_p = 1.0)),
        ("penalties at bounds",             json!({"frequency_penalty": -2, "presence_penalty": 2, "repetition_penalty": 2}), params(|p| { p.frequency_penalty = -2.0; p.presence_penalty = 2.0; p.repetition_penalty = 2.0; })),
        ("n",                               json!({"n": 128}),                           params(|p| p.n = 128)),
        ("one stop string",                 json!({"stop": "né"}),                       params(|p| { p.stop_strs = vec!["né".into()]; p.stop_str_max_len = 3; })),
        ("list of stop strings",            json!({"stop": ["a", "\n\nb"]}),             params(|p| { p.stop_strs = vec!["a".into(), "\n\nb".into()]; p.stop_str_max_len = 3; })),
        ("empty stop list",                 json!({"stop": []}),                         params(|_| ())),
        ("longest stop list",               json!({"stop": vec!["x".repeat(256); 32]}),  params(|p| { p.stop_strs = vec!["x".repeat(256); 32]; p.stop_str_max_len = 256; })),
        ("null stop_regex",                 json!({"stop_regex": null}),                 params(|_| ())),
        ("empty stop_regex",                json!({"stop_regex": []}),                   params(|_| ())),
        ("stop_token_ids",                  json!({"stop_token_ids": [2, 1, 2]}),        params(|p| p.stop_token_ids = Some(vec![2, 1, 2]))),
        ("empty stop_token_ids",            json!({"stop_token_ids": []}),               params(|_| ())),
        ("json_schema",                     json!({"json_schema": "{}"}),                params(|p| p.json_schema = Some("{}".into()))),
        ("regex",                           json!({"regex": "a|b"}),                     params(|p| p.regex = Some("a|b".into()))),
        ("ebnf and structural_tag",         json!({"ebnf": "r", "structural_tag": "t"}), params(|p| { p.ebnf = Some("r".into()); p.structural_tag = Some("t".into()); })),
        ("ebnf, regex null",                json!({"ebnf": "r", "regex": null}),         params(|p| p.ebnf = Some("r".into()))),
        ("flags",                           json!({"ignore_eos": true, "skip_special_tokens": false, "spaces_between_special_tokens": false, "no_stop_trim": true}),
            params(|p| { p.ignore_eos = true; p.skip_special_tokens = false; p.spaces_between_special_tokens = false; p.no_stop_trim = true; })),
        ("stream_interval",            json!({"stream_interval": 1}),               params(|p| p.stream_interval = Some(1))),
        ("logit_bias",                 json!({"logit_bias": {"10": 1, "9": -0.5}}), params(|p| p.logit_bias = Some(vec![(10, 1.0), (9, -0.5)]))),
        ("empty logit_bias",           json!({"logit_bias": {}}),                   params(|_| ())),
        ("sampling_seed",              json!({"sampling_seed": i64::MIN}),          params(|p| p.sampling_seed = Some(i64::MIN))),
        ("custom_params",              json!({"custom_params": {"a": [null, {}]}}), params(|p| p.custom_params = Some(object(&json!({"a": [null, {}]}))))),
        ("empty custom_params",        json!({"custom_params": {}}),                params(|p| p.custom_params = Some(Map::new()))),
        ("regex, other grammars null", json!({"json_schema": null, "regex": "a", "ebnf": null}), params(|p| p.regex = Some("a".into()))),
    ];
    for (name, value, expected) in cases {
        assert_eq!(Ok(expected), read(&value), "{name}");
    }
}

/// Long because it is a table with one row per case.
#[test]
fn invalid_parameters_are_refused_by_name() {
    #[rustfmt::skip]
    let cases: Vec<(&str, Value, &str, &str)> = vec![
        ("unknown name",                json!({"top_n": 1}),                     "top_n",                "is not a sampling parameter"),
        ("unknown name, null",          json!({"top_n": null}),                  "top_n",                "is not a sampling parameter"),
        ("internal stop_strs",          json!({"stop_strs": ["a"]}),             "stop_strs",            "is not a sampling parameter"),
        ("internal stop_regex_strs",    json!({"stop_regex_strs": ["a"]}),       "stop_regex_strs",      "is not a sampling parameter"),
        ("internal stop_str_max_len",   json!({"stop_str_max_len": 1}),          "stop_str_max_len",     "is not a sampling parameter"),
        ("internal stop_regex_max_len", json!({"stop_regex_max_len": 1}),        "stop_regex_max_len",   "is not a sampling parameter"),
        ("internal is_normalized",      json!({"is_normalized": true}),          "is_normalized",        "is not a sampling parameter"),
        ("stop_regex string",           json!({"stop_regex": "a+"}),             "stop_regex",           "is not supported; use `stop`"),
        ("stop_regex list",             json!({"stop_regex": ["a+"]}),           "stop_regex",           "is not supported; use `stop`"),
        ("float for integer",           json!({"max_new_tokens": 5.0}),          "max_new_tokens",       "must be an integer of at most 64 bits, not 5.0"),
        ("string for integer",          json!({"max_new_tokens": "5"}),          "max_new_tokens",       "must be an integer of at most 64 bits, not the string \"5\""),
        ("bool for integer",            json!({"max_new_tokens": true}),         "max_new_tokens",       "must be an integer of at most 64 bits, not true"),
        ("list for integer",            json!({"max_new_tokens": []}),           "max_new_tokens",       "must be an integer of at most 64 bits, not a list"),
        ("integer over 64 bits",        json!({"max_new_tokens": u64::MAX}),     "max_new_tokens",       "must be an integer of at most 64 bits, not 18446744073709551615"),
        ("negative max_new_tokens",     json!({"max_new_tokens": -1}),           "max_new_tokens",       "must be at least 0, or null for no limit, not -1"),
        ("negative min_new_tokens",     json!({"min_new_tokens": -1}),           "min_new_tokens",       "must be at least 0, not -1"),
        ("minimum above default limit", json!({"min_new_tokens": 129}),          "min_new_tokens",       "must be at most `max_new_tokens`, which is 128, not 129"),
        ("minimum above limit",         json!({"min_new_tokens": 2, "max_new_tokens": 1}), "min_new_tokens", "must be at most `max_new_tokens`, which is 1, not 2"),
        ("string for float",            json!({"temperature": "hot"}),           "temperature",          "must be a number, not the string \"hot\""),
        ("object for float",            json!({"temperature": {}}),             "temperature",          "must be a number, not an object"),
        ("negative temperature",        json!({"temperature": -0.1}),            "temperature",          "must be at least 0, not -0.1"),
        ("slightly negative",           json!({"temperature": -1e-9}),           "temperature",          "must be at least 0, not -1e-9"),
        ("top_p 0",                     json!({"top_p": 0}),                     "top_p",                "must be above 0 and at most 1, not 0.0"),
        ("top_p above 1",               json!({"top_p": 1.01}),                  "top_p",                "must be above 0 and at most 1, not 1.01"),
        ("huge top_p",                  json!({"top_p": 1e300}),                 "top_p",                "must be above 0 and at most 1, not 1e300"),
        ("min_p below 0",               json!({"min_p": -0.5}),                  "min_p",                "must be from 0 to 1, not -0.5"),
        ("min_p above 1",               json!({"min_p": 2}),                     "min_p",                "must be from 0 to 1, not 2.0"),
        ("top_k 0",                     json!({"top_k": 0}),                     "top_k",                "must be at least 1, or -1 for all tokens, not 0"),
        ("top_k -2",                    json!({"top_k": -2}),                    "top_k",                "must be at least 1, or -1 for all tokens, not -2"),
        ("top_k float",                 json!({"top_k": 1.0}),                   "top_k",                "must be an integer of at most 64 bits, not 1.0"),
        ("frequency_penalty below -2",  json!({"frequency_penalty": -2.5}),      "frequency_penalty",    "must be from -2 to 2, not -2.5"),
        ("presence_penalty above 2",    json!({"presence_penalty": 2.5}),        "presence_penalty",     "must be from -2 to 2, not 2.5"),
        ("repetition_penalty 0",        json!({"repetition_penalty": 0}),        "repetition_penalty",   "must be above 0 and at most 2, not 0.0"),
        ("repetition_penalty above 2",  json!({"repetition_penalty": 2.5}),      "repetition_penalty",   "must be above 0 and at most 2, not 2.5"),
        ("n 0",                         json!({"n": 0}),                         "n",                    "must be from 1 to 128, not 0"),
        ("n too large",                 json!({"n": 129}),                       "n",                    "must be from 1 to 128, not 129"),
        ("n float",                     json!({"n": 1.0}),                       "n",                    "must be an integer of at most 64 bits, not 1.0"),
        ("stop number",                 json!({"stop": 1}),                      "stop",                 "must be a string or a list of strings, not 1"),
        ("stop object",                 json!({"stop": {}}),                     "stop",                 "must be a string or a list of strings, not an object"),
        ("number in stop list",         json!({"stop": ["a", 1]}),               "stop[1]",              "must be a string, not 1"),
        ("null in stop list",           json!({"stop": [null]}),                 "stop[0]",              "must be a string, not null"),
        ("empty stop string",           json!({"stop": ""}),                     "stop",                 "has an empty string, which would stop at once"),
        ("empty string in stop list",   json!({"stop": ["a", ""]}),              "stop",                 "has an empty string, which would stop at once"),
        ("too many stop strings",       json!({"stop": vec!["a"; 33]}),          "stop",                 "has 33 strings; at most 32 are allowed"),
        ("stop string too long",        json!({"stop": "é".repeat(129)}),        "stop",                 "has a string of 258 bytes; at most 256 are allowed"),
        ("stop_token_ids not a list",   json!({"stop_token_ids": 2}),            "stop_token_ids",       "must be a list, not 2"),
        ("float in stop_token_ids",     json!({"stop_token_ids": [1, 2.0]}),     "stop_token_ids[1]",    "must be an integer of at most 64 bits, not 2.0"),
        ("json_schema object",          json!({"json_schema": {}}),              "json_schema",          "must be a string, not an object"),
        ("ebnf and json_schema",        json!({"ebnf": "r", "json_schema": "{}"}), "ebnf",               "cannot be combined with `sampling_params.json_schema`; send one of them"),
        ("ebnf and regex",              json!({"ebnf": "r", "regex": "a"}),      "ebnf",                 "cannot be combined with `sampling_params.regex`; send one of them"),
        ("number for bool",             json!({"ignore_eos": 1}),                "ignore_eos",           "must be true or false, not 1"),
        ("string for bool",             json!({"no_stop_trim": "true"}),         "no_stop_trim",         "must be true or false, not the string \"true\""),
        ("stream_interval 0",           json!({"stream_interval": 0}),           "stream_interval",      "must be at least 1, not 0"),
        ("logit_bias list",             json!({"logit_bias": [1]}),              "logit_bias",           "must be an object, not a list"),
        ("logit_bias string value",     json!({"logit_bias": {"1": "2"}}),       "logit_bias.1",         "must be a number, not the string \"2\""),
        ("non-numeric token id",        json!({"logit_bias": {"x": 1}}),         "logit_bias.x",         "is not the id of a token"),
        ("negative token id",           json!({"logit_bias": {"-1": 1}}),        "logit_bias.-1",        "is not the id of a token"),
        ("leading zero in token id",    json!({"logit_bias": {"7": 1, "07": 1}}), "logit_bias.07",       "is not the id of a token"),
        ("plus sign in token id",       json!({"logit_bias": {"+7": 1}}),        "logit_bias.+7",        "is not the id of a token"),
        ("token id over 64 bits",       json!({"logit_bias": {"9223372036854775808": 1}}), "logit_bias.9223372036854775808", "is not the id of a token"),
        ("seed over 64 bits",           json!({"sampling_seed": 1_u64 << 63}),   "sampling_seed",        "must be an integer of at most 64 bits, not 9223372036854775808"),
        ("custom_params string",        json!({"custom_params": "{}"}),          "custom_params",        "must be an object, not the string \"{}\""),
    ];
    for (name, value, field, rule) in cases {
        let path = format!("sampling_params.{field}");
        let message = format!("`{path}` {rule}");
        assert_eq!(
            Err(RequestError::field(path, message)),
            read(&value),
            "{name}"
        );
    }
}

/// `max_new_tokens` is the exception: there, null is a value.
#[test]
fn null_counts_as_absent() {
    for name in NAMES.into_iter().filter(|name| *name != "max_new_tokens") {
        assert_eq!(read(&json!({})), read(&json!({ name: null })), "{name}");
    }
}

#[test]
fn request_values_override_preferred_values() {
    #[rustfmt::skip]
    let cases = [
        ("absent",                    json!({}),                            json!({"top_p": 0.5}),            json!({"top_p": 0.5})),
        ("null",                      json!({"top_p": null}),               json!({"top_p": 0.5}),            json!({"top_p": 0.5})),
        ("set in the request",        json!({"top_p": 0.1}),                json!({"top_p": 0.5}),            json!({"top_p": 0.1})),
        ("different parameters",      json!({"top_p": 0.1}),                json!({"top_k": 5}),              json!({"top_p": 0.1, "top_k": 5})),
        ("preferred null",            json!({}),                            json!({"top_p": null}),           json!({})),
        ("stop lists are not merged", json!({"stop": "a"}),                 json!({"stop": ["b"]}),           json!({"stop": "a"})),
        ("max_new_tokens absent",     json!({}),                            json!({"max_new_tokens": 9}),     json!({"max_new_tokens": 9})),
        ("max_new_tokens null",       json!({"max_new_tokens": null}),      json!({"max_new_tokens": 9}),     json!({"max_new_tokens": null})),
        ("preferred has no limit",    json!({}),                            json!({"max_new_tokens": null}),  json!({"max_new_tokens": null})),
        ("preferred is greedy",       json!({"top_p": 0.3}),                json!({"temperature": 0}),        json!({"top_p": 0.3, "temperature": 0})),
    ];
    for (name, value, preferred, same_as) in cases {
        assert_eq!(
            read(&same_as),
            read_with_preferred(&value, &preferred),
            "{name}"
        );
    }
}

/// Without an enclosing object the path is only the name.
#[test]
fn errors_contain_the_path_of_the_parameter() {
    for (at, expected) in [("", "n"), ("sampling_params[3]", "sampling_params[3].n")] {
        let got = SamplingParams::from_json(object(&json!({"n": 0})), &Map::new(), at);
        let message = format!("`{expected}` must be from 1 to 128, not 0");
        assert_eq!(Err(RequestError::field(expected, message)), got);
    }
}

#[test]
fn checks_that_depend_on_the_server() {
    let biased = read(&json!({"logit_bias": {"3": 1, "99": 1}})).unwrap();
    let path = "sampling_params.logit_bias";
    let message = format!("`{path}` names token 99, but the model has 99 tokens");
    assert_eq!(Ok(()), biased.check_vocab(100));
    assert_eq!(
        Err(RequestError::field(path, message)),
        biased.check_vocab(99)
    );
    assert_eq!(Ok(()), SamplingParams::default().check_vocab(0));

    #[rustfmt::skip]
    let cases = [
        (json!({}),                                       None),
        (json!({"stop_token_ids": [1]}),                  None),
        (json!({"stop": "a"}),                            Some("sampling_params.stop")),
        (json!({"min_new_tokens": 1}),                    Some("sampling_params.min_new_tokens")),
    ];
    for (value, needs) in cases {
        let expected = needs.map_or(Ok(()), |path| {
            let message =
                format!("`{path}` needs a tokenizer, and this server was started without one");
            Err(RequestError::field(path, message))
        });
        assert_eq!(
            expected,
            read(&value).unwrap().check_without_tokenizer(),
            "{value}"
        );
    }
}

/// JSON cannot express these numbers, but Rust code can set them.
#[test]
fn verify_refuses_nan_and_infinity() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(params(|p| p.temperature = bad).verify("").is_err(), "{bad}");
        assert!(
            params(|p| p.repetition_penalty = bad).verify("").is_err(),
            "{bad}"
        );
        assert!(
            params(|p| p.logit_bias = Some(vec![(0, bad)]))
                .verify("")
                .is_err(),
            "{bad}"
        );
    }
    assert!(
        params(|p| p.logit_bias = Some(vec![(-1, 0.0)]))
            .verify("")
            .is_err()
    );
}

proptest! {
    /// An accepted value is in range and normalised. An error names the parameter and is short.
    #[test]
    fn any_value_of_any_parameter_is_accepted_or_refused(
        name in prop_oneof![9 => proptest::sample::select(&NAMES[..]).prop_map(str::to_owned), 1 => any::<String>()],
        value in any_json(),
    ) {
        match read(&json!({ name.as_str(): value })) {
            Ok(params) => {
                prop_assert_eq!(Ok(()), params.verify("sampling_params"));
                let mut again = params.clone();
                again.normalize();
                prop_assert_eq!(params, again);
            }
            Err(RequestError::Invalid { message, param, .. }) => {
                prop_assert!(param.unwrap().starts_with("sampling_params."));
                prop_assert!(message.len() < 2000, "{}", message);
            }
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }
}
