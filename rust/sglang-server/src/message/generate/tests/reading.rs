//! `from_json`: how bytes become columns.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    super::{body::FIELDS, column::Column},
    GenerateBody, refusal, requests,
};
use crate::{error::RequestError, message::json::any_json};

fn read(body: &str) -> Result<GenerateBody, RequestError> {
    GenerateBody::from_json(body.as_bytes())
}

fn body(change: impl FnOnce(&mut GenerateBody)) -> GenerateBody {
    let mut body = GenerateBody::default();
    change(&mut body);
    body
}

fn object(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap()
}

/// Long because it is a table with one row per case.
#[test]
fn valid_bodies_are_read_into_columns() {
    use Column::{Many, One};
    let hundred = format!(r#"{{"x": {}{}}}"#, "[".repeat(100), "]".repeat(100));
    #[rustfmt::skip]
    let cases: Vec<(&str, &str, GenerateBody)> = vec![
        ("empty object",            "{}",                                body(|_| ())),
        ("only white space",        " \r\n\t{ } \n",                     body(|_| ())),
        ("one text",                r#"{"text": "a\u00e9\n"}"#,          body(|b| b.text = One("aé\n".into()))),
        ("list of texts",           r#"{"text": ["a", ""]}"#,            body(|b| b.text = Many(vec![Some("a".into()), Some(String::new())]))),
        ("list of one text",        r#"{"text": ["a"]}"#,                body(|b| b.text = Many(vec![Some("a".into())]))),
        ("surrogate pair",          r#"{"text": "\ud83d\ude00"}"#,       body(|b| b.text = One("😀".into()))),
        ("one list of ids",         r#"{"input_ids": [1, -1, 2147483647, -2147483648]}"#, body(|b| b.input_ids = One(vec![1, -1, i32::MAX, i32::MIN]))),
        ("empty list of ids",       r#"{"input_ids": []}"#,              body(|b| b.input_ids = One(vec![]))),
        ("lists of ids",            r#"{"input_ids": [[1, 2], [], [3]]}"#, body(|b| b.input_ids = Many(vec![Some(vec![1, 2]), Some(vec![]), Some(vec![3])]))),
        ("list of one empty list",  r#"{"input_ids": [[]]}"#,            body(|b| b.input_ids = Many(vec![Some(vec![])]))),
        ("rid",                     r#"{"rid": "x"}"#,                   body(|b| b.rid = One("x".into()))),
        ("rids, one null",          r#"{"rid": ["x", null]}"#,           body(|b| b.rid = Many(vec![Some("x".into()), None]))),
        ("stream true",             r#"{"stream": true}"#,               body(|b| b.stream = true)),
        ("stream false",            r#"{"stream": false}"#,              body(|_| ())),
        ("sampling_params",         r#"{"sampling_params": {"n": 2}}"#,  body(|b| b.sampling_params = One(object(json!({"n": 2}))))),
        ("list of sampling_params", r#"{"sampling_params": [{}, null]}"#, body(|b| b.sampling_params = Many(vec![Some(Map::new()), None]))),
        ("nested custom_params",    r#"{"sampling_params": {"custom_params": {"a": [1, -2, 3e4, 18446744073709551615, "b", null, {"c": false}]}}}"#,
            body(|b| b.sampling_params = One(object(json!({"custom_params": {"a": [1, -2, 3e4, u64::MAX, "b", null, {"c": false}]}}))))),
        ("return_logprob",              r#"{"return_logprob": true}"#,       body(|b| b.return_logprob = One(true))),
        ("list of return_logprob",      r#"{"return_logprob": [true, null, false]}"#, body(|b| b.return_logprob = Many(vec![Some(true), None, Some(false)]))),
        ("logprob_start_len",           r#"{"logprob_start_len": -1}"#,      body(|b| b.logprob_start_len = One(-1))),
        ("top_logprobs_num",            r#"{"top_logprobs_num": [0, 5]}"#,   body(|b| b.top_logprobs_num = Many(vec![Some(0), Some(5)]))),
        ("token_ids_logprob",           r#"{"token_ids_logprob": [7]}"#,     body(|b| b.token_ids_logprob = One(vec![7]))),
        ("list of token_ids_logprob",   r#"{"token_ids_logprob": [null, [7]]}"#, body(|b| b.token_ids_logprob = Many(vec![None, Some(vec![7])]))),
        ("return_text_in_logprobs",     r#"{"return_text_in_logprobs": true}"#, body(|b| b.return_text_in_logprobs = true)),
        ("return_hidden_states",        r#"{"return_hidden_states": true}"#, body(|b| b.return_hidden_states = One(true))),
        ("bootstrap_host",              r#"{"bootstrap_host": "h"}"#,        body(|b| b.bootstrap_host = One("h".into()))),
        ("list of bootstrap_host",      r#"{"bootstrap_host": [null, "h"]}"#, body(|b| b.bootstrap_host = Many(vec![None, Some("h".into())]))),
        ("bootstrap_port",              r#"{"bootstrap_port": 8998}"#,       body(|b| b.bootstrap_port = One(8998))),
        ("bootstrap_room",              r#"{"bootstrap_room": 9223372036854775807}"#, body(|b| b.bootstrap_room = One(i64::MAX))),
        ("bootstrap_pair_key",          r#"{"bootstrap_pair_key": "k"}"#,    body(|b| b.bootstrap_pair_key = One("k".into()))),
        ("decode_tp_size",              r#"{"decode_tp_size": [4]}"#,        body(|b| b.decode_tp_size = Many(vec![Some(4)]))),
        ("routed_dp_rank",              r#"{"routed_dp_rank": 3}"#,          body(|b| b.routed_dp_rank = Some(3))),
        ("disagg_prefill_dp_rank",      r#"{"disagg_prefill_dp_rank": 0}"#,  body(|b| b.disagg_prefill_dp_rank = Some(0))),
        ("media are ignored",           r#"{"image_data": [{"url": "x"}], "video_data": 1, "audio_data": "y", "mm_hashes": [["00"]]}"#, body(|_| ())),
        ("unknown field",               r#"{"lora_path": {"a": [1, "b\n", null]}}"#, body(|_| ())),
        ("duplicate unknown field",     r#"{"x": 1, "x": {"a": 1, "a": 2}}"#, body(|_| ())),
        ("field name with escapes",     r#"{"\u0073tream": true}"#,          body(|b| b.stream = true)),
        ("empty field name",            r#"{"": 1}"#,                        body(|_| ())),
        ("100 levels in unknown field", &hundred, body(|_| ())),
        ("empty list of texts",         r#"{"text": []}"#,                   body(|b| b.text = Many(vec![]))),
    ];
    for (name, json, expected) in cases {
        assert_eq!(Ok(expected), read(json), "{name}");
    }
}

/// Long because it is a table with one row per case.
#[test]
fn values_of_the_wrong_type_are_refused_by_path() {
    let long = "x".repeat(101);
    #[rustfmt::skip]
    let cases = [
        ("number for text",                r#"{"text": 5}"#,                        "text",                 "must be a string, or a list of one for each prompt, not 5"),
        ("object for text",                r#"{"text": {"a": 1}}"#,                 "text",                 "must be a string, not an object"),
        ("number in texts",                r#"{"text": ["a", 5]}"#,                 "text[1]",              "must be a string, not 5"),
        ("list in texts",                  r#"{"text": [["a"]]}"#,                  "text[0]",              "must be a string, not a list"),
        ("string for input_ids",           r#"{"input_ids": "1"}"#,                 "input_ids",            "must be a list of integers, or a list of such lists, not the string \"1\""),
        ("number for input_ids",           r#"{"input_ids": 1}"#,                   "input_ids",            "must be a list of integers, or a list of such lists, not 1"),
        ("first id is a string",           r#"{"input_ids": ["1"]}"#,               "input_ids[0]",         "must be an integer of at most 32 bits or a list of them, not the string \"1\""),
        ("first id is a bool",             r#"{"input_ids": [true]}"#,              "input_ids[0]",         "must be an integer of at most 32 bits or a list of them, not true"),
        ("first id is an object",          r#"{"input_ids": [{}]}"#,                "input_ids[0]",         "must be an integer of at most 32 bits or a list of them, not an object"),
        ("first id is a float",            r#"{"input_ids": [1.0]}"#,               "input_ids[0]",         "must be an integer of at most 32 bits or a list of them, not 1.0"),
        ("list among ids",                 r#"{"input_ids": [1, [2]]}"#,            "input_ids[1]",         "must be an integer of at most 32 bits, not a list"),
        ("id among lists",                 r#"{"input_ids": [[1], 2]}"#,            "input_ids[1]",         "must be a list of integers, not 2"),
        ("float among ids",                r#"{"input_ids": [1, 2, 3.5]}"#,         "input_ids[2]",         "must be an integer of at most 32 bits, not 3.5"),
        ("null among ids",                 r#"{"input_ids": [1, null]}"#,           "input_ids[1]",         "must be an integer of at most 32 bits, not null"),
        ("string in a list of ids",        r#"{"input_ids": [[1, "2"]]}"#,          "input_ids[0][1]",      "must be an integer of at most 32 bits, not the string \"2\""),
        ("null in a list of ids",          r#"{"input_ids": [[1], [1, null]]}"#,    "input_ids[1][1]",      "must be an integer of at most 32 bits, not null"),
        ("lists nested too deep",          r#"{"input_ids": [[[1]]]}"#,             "input_ids[0][0]",      "must be an integer of at most 32 bits, not a list"),
        ("id over 32 bits",                r#"{"input_ids": [2147483648]}"#,        "input_ids[0]",         "must be an integer of at most 32 bits or a list of them, not 2147483648"),
        ("negative id over 32 bits",       r#"{"input_ids": [0, -2147483649]}"#,    "input_ids[1]",         "must be an integer of at most 32 bits, not -2147483649"),
        ("id over 64 bits",                r#"{"input_ids": [0, 99999999999999999999]}"#, "input_ids[1]",   "must be an integer of at most 32 bits, not 1e20"),
        ("id with exponent",               r#"{"input_ids": [0, 1e2]}"#,            "input_ids[1]",         "must be an integer of at most 32 bits, not 100.0"),
        ("number for rid",                 r#"{"rid": 5}"#,                         "rid",                  "must be a string, or a list of one for each prompt, not 5"),
        ("bool in rids",                   r#"{"rid": ["a", false]}"#,              "rid[1]",               "must be a string, not false"),
        ("1 for stream",                   r#"{"stream": 1}"#,                      "stream",               "must be true or false, not 1"),
        ("string for stream",              r#"{"stream": "true"}"#,                 "stream",               "must be true or false, not the string \"true\""),
        ("list for stream",                r#"{"stream": [true]}"#,                 "stream",               "must be true or false, not a list"),
        ("string for sampling_params",     r#"{"sampling_params": "{}"}"#,          "sampling_params",      "must be an object, or a list of one for each prompt, not the string \"{}\""),
        ("number in sampling_params",      r#"{"sampling_params": [{}, 1]}"#,       "sampling_params[1]",   "must be an object, not 1"),
        ("list in sampling_params",        r#"{"sampling_params": [[]]}"#,          "sampling_params[0]",   "must be an object, not a list"),
        ("string for return_logprob",      r#"{"return_logprob": "yes"}"#,          "return_logprob",       "must be true or false, or a list of one for each prompt, not the string \"yes\""),
        ("float for logprob_start_len",    r#"{"logprob_start_len": 0.0}"#,         "logprob_start_len",    "must be an integer of at most 64 bits, or a list of one for each prompt, not 0.0"),
        ("float in top_logprobs_num",      r#"{"top_logprobs_num": [1, 2.0]}"#,     "top_logprobs_num[1]",  "must be an integer of at most 64 bits, not 2.0"),
        ("number for token_ids_logprob",   r#"{"token_ids_logprob": 5}"#,           "token_ids_logprob",    "must be a list of integers, or a list of such lists, not 5"),
        ("string in token_ids_logprob",    r#"{"token_ids_logprob": [[1], ["a"]]}"#, "token_ids_logprob[1][0]", "must be an integer of at most 32 bits, not the string \"a\""),
        ("list for a call-wide bool",      r#"{"return_text_in_logprobs": [true]}"#, "return_text_in_logprobs", "must be true or false, not a list"),
        ("2 for return_hidden_states",     r#"{"return_hidden_states": 2}"#,        "return_hidden_states", "must be true or false, or a list of one for each prompt, not 2"),
        ("number for bootstrap_host",      r#"{"bootstrap_host": 1}"#,              "bootstrap_host",       "must be a string, or a list of one for each prompt, not 1"),
        ("string for bootstrap_port",      r#"{"bootstrap_port": "1"}"#,            "bootstrap_port",       "must be an integer of at most 64 bits, or a list of one for each prompt, not the string \"1\""),
        ("bootstrap_room over 64 bits",    r#"{"bootstrap_room": 9223372036854775808}"#, "bootstrap_room",  "must be an integer of at most 64 bits, or a list of one for each prompt, not 9223372036854775808"),
        ("list for a call-wide integer",   r#"{"routed_dp_rank": [1]}"#,            "routed_dp_rank",       "must be an integer of at most 64 bits, not a list"),
        ("duplicate field",                r#"{"text": "a", "text": "a"}"#,         "text",                 "is given twice"),
        ("duplicate field, first null",    r#"{"text": null, "text": "a"}"#,        "text",                 "is given twice"),
        ("duplicate input_ids",            r#"{"input_ids": [1], "input_ids": [1]}"#, "input_ids",          "is given twice"),
        ("duplicate media field",          r#"{"mm_hashes": [], "mm_hashes": []}"#, "mm_hashes",            "is given twice"),
        ("duplicate sampling parameter",   r#"{"sampling_params": [{}, {"n": 1, "n": 1}]}"#, "sampling_params[1].n", "is given twice"),
        ("duplicate nested key",           r#"{"sampling_params": {"a": [{"b": 1, "b": 1}]}}"#, "sampling_params.a[0].b", "is given twice"),
        ("long value is cut",              &format!(r#"{{"stream": "{long}"}}"#),   "stream",               &format!("must be true or false, not the string \"{}\"...", &long[1..])),
        ("control characters are escaped", r#"{"stream": "\u0000\"\u2028"}"#,       "stream",               "must be true or false, not the string \"\\0\\\"\\u{2028}\""),
    ];
    for (name, json, field, rule) in cases {
        assert_eq!(Err(refusal(field, rule)), read(json), "{name}");
    }
}

/// Long because it is a table with one row per case.
#[test]
fn invalid_json_is_refused_with_its_position() {
    let nested =
        |open: &str, close: &str| format!("{}{}", open.repeat(10_000), close.repeat(10_000));
    let deep = "not valid JSON: recursion limit exceeded";
    #[rustfmt::skip]
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty object",                   b"".to_vec(),                               "not valid JSON: EOF while parsing a value at line 1 column 0"),
        ("only white space",               b" ".to_vec(),                              "not valid JSON: EOF while parsing a value at line 1 column 1"),
        ("a list",                         b"[]".to_vec(),                             "must be a JSON object, not a list"),
        ("a string",                       b"\"text\"".to_vec(),                       "must be a JSON object, not the string \"text\""),
        ("null",                           b"null".to_vec(),                           "must be a JSON object, not null"),
        ("a number",                       b"-1".to_vec(),                             "must be a JSON object, not -1"),
        ("unclosed object",                b"{".to_vec(),                              "not valid JSON: EOF while parsing an object at line 1 column 1"),
        ("unclosed string",                br#"{"text": "a"#.to_vec(),                 "not valid JSON: EOF while parsing a string at line 1 column 11"),
        ("unclosed list",                  br#"{"input_ids": [1,"#.to_vec(),           "not valid JSON: EOF while parsing a value at line 1 column 17"),
        ("trailing comma in a list",       br#"{"input_ids": [1,]}"#.to_vec(),         "not valid JSON: trailing comma at line 1 column 18"),
        ("trailing comma in an object",    br#"{"text": "a",}"#.to_vec(),              "not valid JSON: trailing comma at line 1 column 14"),
        ("unquoted key",                   br#"{text: "a"}"#.to_vec(),                 "not valid JSON: key must be a string at line 1 column 2"),
        ("single quotes",                  b"{'text': 'a'}".to_vec(),                 "not valid JSON: key must be a string at line 1 column 2"),
        ("a comment",                      b"{} // {}".to_vec(),                      "not valid JSON: trailing characters at line 1 column 4"),
        ("two bodies",                     b"{}{}".to_vec(),                          "not valid JSON: trailing characters at line 1 column 3"),
        ("a zero byte",                    b"{}\0".to_vec(),                           "not valid JSON: trailing characters at line 1 column 3"),
        ("a byte order mark",              b"\xef\xbb\xbf{}".to_vec(),                 "not valid JSON: expected value at line 1 column 1"),
        ("NaN",                            br#"{"routed_dp_rank": NaN}"#.to_vec(),     "not valid JSON: expected value at line 1 column 20"),
        ("infinity",                       br#"{"x": Infinity}"#.to_vec(),             "not valid JSON: expected value at line 1 column 7"),
        ("minus infinity",                 br#"{"x": -Infinity}"#.to_vec(),            "not valid JSON: invalid number at line 1 column 8"),
        ("1e999",                          br#"{"routed_dp_rank": 1e999}"#.to_vec(),   "not valid JSON: number out of range at line 1 column 24"),
        ("1e999 in unknown field",         br#"{"x": [1e999]}"#.to_vec(),              "not valid JSON: number out of range at line 1 column 12"),
        ("1e999 in sampling_params",       br#"{"sampling_params": {"top_p": 1e999}}"#.to_vec(), "not valid JSON: number out of range at line 1 column 35"),
        ("a leading zero",                 br#"{"input_ids": [01]}"#.to_vec(),         "not valid JSON: invalid number at line 1 column 17"),
        ("raw line break in a string",     b"{\"text\": \"a\nb\"}".to_vec(),           "not valid JSON: control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0"),
        ("half a surrogate pair",          br#"{"text": "\ud83d"}"#.to_vec(),          "not valid JSON: unexpected end of hex escape at line 1 column 17"),
        ("invalid UTF-8 in text",          b"{\"text\": \"\xff\"}".to_vec(),          "not valid JSON: invalid unicode code point at line 1 column 11"),
        ("invalid UTF-8 in unknown field", b"{\"x\": \"\xff\"}".to_vec(),              "not valid JSON: invalid unicode code point at line 1 column 8"),
        ("invalid UTF-8 in a key",         b"{\"\xff\": 1}".to_vec(),                  "not valid JSON: invalid unicode code point at line 1 column 3"),
        ("10,000 lists",                   nested("[", "]").into_bytes(),              "must be a JSON object, not a list"),
        ("10,000 lists in unknown field",  format!(r#"{{"x": {}}}"#, nested("[", "]")).into_bytes(), deep),
        ("10,000 objects",                 format!(r#"{{"sampling_params": {}}}"#, nested(r#"{"a":"#, "}")).into_bytes(), deep),
    ];
    for (name, json, problem) in cases {
        let Err(RequestError::Invalid {
            message,
            param: None,
            ..
        }) = GenerateBody::from_json(&json)
        else {
            panic!("{name}: {:?}", GenerateBody::from_json(&json));
        };
        let expected = if problem == deep {
            message
                .strip_prefix("the body is ")
                .is_some_and(|rest| rest.starts_with(deep))
        } else {
            message == format!("the body is {problem}") || message == format!("the body {problem}")
        };
        assert!(expected, "{name}: {message}");
    }
}

#[test]
fn null_counts_as_absent() {
    for field in FIELDS {
        let nothing = read(&json!({ field: null }).to_string());
        assert_eq!(Ok(GenerateBody::default()), nothing, "{field}");
    }
}

/// Guards against a field that is in `FIELDS` but not in `GenerateBody::set`. Media fields are
/// ignored on purpose.
#[test]
fn every_field_checks_its_type() {
    let media = ["image_data", "video_data", "audio_data", "mm_hashes"];
    for field in FIELDS.into_iter().filter(|field| !media.contains(field)) {
        assert!(
            read(&json!({ field: {"a": [1.5]} }).to_string()).is_err()
                || field == "sampling_params"
        );
        assert!(read(&json!({ field: 1.5 }).to_string()).is_err(), "{field}");
    }
}

#[test]
fn lists_have_a_maximum_length() {
    let most = 1 << 16;
    let rule = "has more than 65536 elements";
    for (field, element) in [
        ("text", r#""""#),
        ("rid", "null"),
        ("input_ids", "[]"),
        ("sampling_params", "{}"),
    ] {
        let list = |count| format!(r#"{{"{field}": [{}]}}"#, vec![element; count].join(","));
        assert!(read(&list(most)).is_ok(), "{field}");
        assert_eq!(Err(refusal(field, rule)), read(&list(most + 1)), "{field}");
    }
    let ids = format!(r#"{{"input_ids": [{}]}}"#, vec!["1"; most + 1].join(","));
    assert_eq!(
        Ok(body(|b| b.input_ids = Column::One(vec![1; most + 1]))),
        read(&ids)
    );
}

/// A tree takes many times the memory of its text.
#[test]
fn trees_have_a_memory_limit() {
    let objects = |count| {
        format!(
            r#"{{"sampling_params": {{"custom_params": {{"a": [{}]}}}}}}"#,
            vec![r#"{"a":1}"#; count].join(",")
        )
    };
    assert!(read(&objects(80_000)).is_ok());
    let rule = "needs more memory than one call may use; send less";
    let field = "sampling_params.custom_params.a";
    let refused = read(&objects(81_000)).unwrap_err();
    let RequestError::Invalid {
        message,
        param: Some(param),
        ..
    } = &refused
    else {
        panic!("{refused:?}");
    };
    assert!(param.starts_with(field), "{param}");
    assert!(message.ends_with(rule), "{message}");
}

#[test]
fn long_paths_are_cut() {
    let key = "k".repeat(1000);
    let open = format!(r#"{{"{key}":"#).repeat(50);
    let json = format!(
        r#"{{"sampling_params": {open}{{"a": 1, "a": 1}}{}}}"#,
        "}".repeat(50)
    );
    let path = format!("sampling_params.{0}.{0}.{1}...", &key[..100], &key[..82]);
    assert_eq!(Err(refusal(&path, "is given twice")), read(&json));
}

proptest! {
    /// The body may also have a prompt. Error messages are short.
    #[test]
    fn any_value_of_any_field_is_accepted_or_refused(
        field in prop_oneof![9 => proptest::sample::select(&FIELDS[..]).prop_map(str::to_owned), 1 => any::<String>()],
        value in any_json(),
        prompt in proptest::sample::select(&[r#"{"text": "a"}"#, r#"{"input_ids": [[1], [2]]}"#, "{}"][..]),
    ) {
        let mut body: Map<String, Value> = serde_json::from_str(prompt).unwrap();
        body.insert(field, value);
        match requests(&serde_json::to_vec(&body).unwrap()) {
            Ok((requests, is_list)) => prop_assert!(is_list || requests.len() == 1),
            Err(RequestError::Invalid { message, .. }) => {
                prop_assert!(message.len() < 2000, "{}", message);
            }
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }

    /// The body is valid except for a few changed bytes.
    #[test]
    fn any_bytes_are_accepted_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut damaged = br#"{"rid":["a","b"],"input_ids":[[1,2],[3]],"sampling_params":[{"n":2},null],"bootstrap_room":5}"#.to_vec();
        for (index, byte) in damage {
            let index = index.index(damaged.len());
            damaged[index] = byte;
        }
        for body in [bytes, damaged] {
            if let Err(error) = requests(&body) {
                prop_assert_eq!(400, error.status());
                prop_assert!(error.to_string().len() < 2000, "{}", error);
            }
        }
    }
}
