//! From bytes to columns.

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

#[test]
fn accepted() {
    use Column::{Many, One};
    let hundred = format!(r#"{{"x": {}{}}}"#, "[".repeat(100), "]".repeat(100));
    #[rustfmt::skip]
    let cases: Vec<(&str, &str, GenerateBody)> = vec![
        ("nothing",               "{}",                                body(|_| ())),
        ("white space",           " \r\n\t{ } \n",                     body(|_| ())),
        ("a text",                r#"{"text": "a\u00e9\n"}"#,          body(|b| b.text = One("aé\n".into()))),
        ("texts",                 r#"{"text": ["a", ""]}"#,            body(|b| b.text = Many(vec![Some("a".into()), Some(String::new())]))),
        ("a batch of one",        r#"{"text": ["a"]}"#,                body(|b| b.text = Many(vec![Some("a".into())]))),
        ("a pair of surrogates",  r#"{"text": "\ud83d\ude00"}"#,       body(|b| b.text = One("😀".into()))),
        ("ids",                   r#"{"input_ids": [1, -1, 2147483647, -2147483648]}"#, body(|b| b.input_ids = One(vec![1, -1, i32::MAX, i32::MIN]))),
        ("no ids",                r#"{"input_ids": []}"#,              body(|b| b.input_ids = One(vec![]))),
        ("lists of ids",          r#"{"input_ids": [[1, 2], [], [3]]}"#, body(|b| b.input_ids = Many(vec![Some(vec![1, 2]), Some(vec![]), Some(vec![3])]))),
        ("a list with none",      r#"{"input_ids": [[]]}"#,            body(|b| b.input_ids = Many(vec![Some(vec![])]))),
        ("a name",                r#"{"rid": "x"}"#,                   body(|b| b.rid = One("x".into()))),
        ("names, one open",       r#"{"rid": ["x", null]}"#,           body(|b| b.rid = Many(vec![Some("x".into()), None]))),
        ("a stream",              r#"{"stream": true}"#,               body(|b| b.stream = true)),
        ("no stream",             r#"{"stream": false}"#,              body(|_| ())),
        ("parameters",            r#"{"sampling_params": {"n": 2}}"#,  body(|b| b.sampling_params = One(object(json!({"n": 2}))))),
        ("a list of them",        r#"{"sampling_params": [{}, null]}"#, body(|b| b.sampling_params = Many(vec![Some(Map::new()), None]))),
        ("deep custom ones",      r#"{"sampling_params": {"custom_params": {"a": [1, -2, 3e4, 18446744073709551615, "b", null, {"c": false}]}}}"#,
            body(|b| b.sampling_params = One(object(json!({"custom_params": {"a": [1, -2, 3e4, u64::MAX, "b", null, {"c": false}]}}))))),
        ("log-probabilities",     r#"{"return_logprob": true}"#,       body(|b| b.return_logprob = One(true))),
        ("by prompt",             r#"{"return_logprob": [true, null, false]}"#, body(|b| b.return_logprob = Many(vec![Some(true), None, Some(false)]))),
        ("their start",           r#"{"logprob_start_len": -1}"#,      body(|b| b.logprob_start_len = One(-1))),
        ("the likeliest",         r#"{"top_logprobs_num": [0, 5]}"#,   body(|b| b.top_logprobs_num = Many(vec![Some(0), Some(5)]))),
        ("of ids",                r#"{"token_ids_logprob": [7]}"#,     body(|b| b.token_ids_logprob = One(vec![7]))),
        ("of ids by prompt",      r#"{"token_ids_logprob": [null, [7]]}"#, body(|b| b.token_ids_logprob = Many(vec![None, Some(vec![7])]))),
        ("their text",            r#"{"return_text_in_logprobs": true}"#, body(|b| b.return_text_in_logprobs = true)),
        ("hidden states",         r#"{"return_hidden_states": true}"#, body(|b| b.return_hidden_states = One(true))),
        ("a host",                r#"{"bootstrap_host": "h"}"#,        body(|b| b.bootstrap_host = One("h".into()))),
        ("hosts",                 r#"{"bootstrap_host": [null, "h"]}"#, body(|b| b.bootstrap_host = Many(vec![None, Some("h".into())]))),
        ("a port",                r#"{"bootstrap_port": 8998}"#,       body(|b| b.bootstrap_port = One(8998))),
        ("a room",                r#"{"bootstrap_room": 9223372036854775807}"#, body(|b| b.bootstrap_room = One(i64::MAX))),
        ("a key",                 r#"{"bootstrap_pair_key": "k"}"#,    body(|b| b.bootstrap_pair_key = One("k".into()))),
        ("ranks that decode",     r#"{"decode_tp_size": [4]}"#,        body(|b| b.decode_tp_size = Many(vec![Some(4)]))),
        ("a rank",                r#"{"routed_dp_rank": 3}"#,          body(|b| b.routed_dp_rank = Some(3))),
        ("another rank",          r#"{"disagg_prefill_dp_rank": 0}"#,  body(|b| b.disagg_prefill_dp_rank = Some(0))),
        ("media of any shape",    r#"{"image_data": [{"url": "x"}], "video_data": 1, "audio_data": "y", "mm_hashes": [["00"]]}"#, body(|_| ())),
        ("an unknown key",        r#"{"lora_path": {"a": [1, "b\n", null]}}"#, body(|_| ())),
        ("unknown keys twice",    r#"{"x": 1, "x": {"a": 1, "a": 2}}"#, body(|_| ())),
        ("a key with escapes",    r#"{"\u0073tream": true}"#,          body(|b| b.stream = true)),
        ("an empty key",          r#"{"": 1}"#,                        body(|_| ())),
        ("100 levels, unknown",   &hundred, body(|_| ())),
        ("an empty batch",        r#"{"text": []}"#,                   body(|b| b.text = Many(vec![]))),
    ];
    for (name, json, expected) in cases {
        assert_eq!(Ok(expected), read(json), "{name}");
    }
}

#[test]
fn wrong_types() {
    let long = "x".repeat(101);
    #[rustfmt::skip]
    let cases = [
        ("a text of ids",         r#"{"text": 5}"#,                        "text",                 "must be a string, or a list of one for each prompt, not 5"),
        ("an object of text",     r#"{"text": {"a": 1}}"#,                 "text",                 "must be a string, not an object"),
        ("a number among texts",  r#"{"text": ["a", 5]}"#,                 "text[1]",              "must be a string, not 5"),
        ("texts within texts",    r#"{"text": [["a"]]}"#,                  "text[0]",              "must be a string, not a list"),
        ("ids as text",           r#"{"input_ids": "1"}"#,                 "input_ids",            "must be a list of integers, or a list of such lists, not the string \"1\""),
        ("one id",                r#"{"input_ids": 1}"#,                   "input_ids",            "must be a list of integers, or a list of such lists, not 1"),
        ("first a text",          r#"{"input_ids": ["1"]}"#,               "input_ids[0]",         "must be an integer of at most 32 bits or a list of them, not the string \"1\""),
        ("first a flag",          r#"{"input_ids": [true]}"#,              "input_ids[0]",         "must be an integer of at most 32 bits or a list of them, not true"),
        ("first an object",       r#"{"input_ids": [{}]}"#,                "input_ids[0]",         "must be an integer of at most 32 bits or a list of them, not an object"),
        ("first a float",         r#"{"input_ids": [1.0]}"#,               "input_ids[0]",         "must be an integer of at most 32 bits or a list of them, not 1.0"),
        ("a list among ids",      r#"{"input_ids": [1, [2]]}"#,            "input_ids[1]",         "must be an integer of at most 32 bits, not a list"),
        ("an id among lists",     r#"{"input_ids": [[1], 2]}"#,            "input_ids[1]",         "must be a list of integers, not 2"),
        ("a float among ids",     r#"{"input_ids": [1, 2, 3.5]}"#,         "input_ids[2]",         "must be an integer of at most 32 bits, not 3.5"),
        ("null among ids",        r#"{"input_ids": [1, null]}"#,           "input_ids[1]",         "must be an integer of at most 32 bits, not null"),
        ("a text in a list",      r#"{"input_ids": [[1, "2"]]}"#,          "input_ids[0][1]",      "must be an integer of at most 32 bits, not the string \"2\""),
        ("null in a list",        r#"{"input_ids": [[1], [1, null]]}"#,    "input_ids[1][1]",      "must be an integer of at most 32 bits, not null"),
        ("three levels",          r#"{"input_ids": [[[1]]]}"#,             "input_ids[0][0]",      "must be an integer of at most 32 bits, not a list"),
        ("33 bits",               r#"{"input_ids": [2147483648]}"#,        "input_ids[0]",         "must be an integer of at most 32 bits or a list of them, not 2147483648"),
        ("33 bits below",         r#"{"input_ids": [0, -2147483649]}"#,    "input_ids[1]",         "must be an integer of at most 32 bits, not -2147483649"),
        ("past 64 bits",          r#"{"input_ids": [0, 99999999999999999999]}"#, "input_ids[1]",   "must be an integer of at most 32 bits, not 1e20"),
        ("an exponent",           r#"{"input_ids": [0, 1e2]}"#,            "input_ids[1]",         "must be an integer of at most 32 bits, not 100.0"),
        ("a name of a number",    r#"{"rid": 5}"#,                         "rid",                  "must be a string, or a list of one for each prompt, not 5"),
        ("among names",           r#"{"rid": ["a", false]}"#,              "rid[1]",               "must be a string, not false"),
        ("a stream of 1",         r#"{"stream": 1}"#,                      "stream",               "must be true or false, not 1"),
        ("a stream of text",      r#"{"stream": "true"}"#,                 "stream",               "must be true or false, not the string \"true\""),
        ("streams",               r#"{"stream": [true]}"#,                 "stream",               "must be true or false, not a list"),
        ("parameters as text",    r#"{"sampling_params": "{}"}"#,          "sampling_params",      "must be an object, or a list of one for each prompt, not the string \"{}\""),
        ("among parameters",      r#"{"sampling_params": [{}, 1]}"#,       "sampling_params[1]",   "must be an object, not 1"),
        ("lists of parameters",   r#"{"sampling_params": [[]]}"#,          "sampling_params[0]",   "must be an object, not a list"),
        ("a flag of text",        r#"{"return_logprob": "yes"}"#,          "return_logprob",       "must be true or false, or a list of one for each prompt, not the string \"yes\""),
        ("a start of float",      r#"{"logprob_start_len": 0.0}"#,         "logprob_start_len",    "must be an integer of at most 64 bits, or a list of one for each prompt, not 0.0"),
        ("a float among counts",  r#"{"top_logprobs_num": [1, 2.0]}"#,     "top_logprobs_num[1]",  "must be an integer of at most 64 bits, not 2.0"),
        ("one id to score",       r#"{"token_ids_logprob": 5}"#,           "token_ids_logprob",    "must be a list of integers, or a list of such lists, not 5"),
        ("an id as text",         r#"{"token_ids_logprob": [[1], ["a"]]}"#, "token_ids_logprob[1][0]", "must be an integer of at most 32 bits, not the string \"a\""),
        ("a list of one flag",    r#"{"return_text_in_logprobs": [true]}"#, "return_text_in_logprobs", "must be true or false, not a list"),
        ("hidden states, two",    r#"{"return_hidden_states": 2}"#,        "return_hidden_states", "must be true or false, or a list of one for each prompt, not 2"),
        ("a host of a number",    r#"{"bootstrap_host": 1}"#,              "bootstrap_host",       "must be a string, or a list of one for each prompt, not 1"),
        ("a port of text",        r#"{"bootstrap_port": "1"}"#,            "bootstrap_port",       "must be an integer of at most 64 bits, or a list of one for each prompt, not the string \"1\""),
        ("65 bits of room",       r#"{"bootstrap_room": 9223372036854775808}"#, "bootstrap_room",  "must be an integer of at most 64 bits, or a list of one for each prompt, not 9223372036854775808"),
        ("a rank for each",       r#"{"routed_dp_rank": [1]}"#,            "routed_dp_rank",       "must be an integer of at most 64 bits, not a list"),
        ("given twice",           r#"{"text": "a", "text": "a"}"#,         "text",                 "is given twice"),
        ("null, then given",      r#"{"text": null, "text": "a"}"#,        "text",                 "is given twice"),
        ("ids twice",             r#"{"input_ids": [1], "input_ids": [1]}"#, "input_ids",          "is given twice"),
        ("media twice",           r#"{"mm_hashes": [], "mm_hashes": []}"#, "mm_hashes",            "is given twice"),
        ("a parameter twice",     r#"{"sampling_params": [{}, {"n": 1, "n": 1}]}"#, "sampling_params[1].n", "is given twice"),
        ("a deep key twice",      r#"{"sampling_params": {"a": [{"b": 1, "b": 1}]}}"#, "sampling_params.a[0].b", "is given twice"),
        ("a long text",           &format!(r#"{{"stream": "{long}"}}"#),   "stream",               &format!("must be true or false, not the string \"{}\"...", &long[1..])),
        ("an ugly text",          r#"{"stream": "\u0000\"\u2028"}"#,       "stream",               "must be true or false, not the string \"\\0\\\"\\u{2028}\""),
    ];
    for (name, json, field, rule) in cases {
        assert_eq!(Err(refusal(field, rule)), read(json), "{name}");
    }
}

#[test]
fn what_is_no_json() {
    let nested =
        |open: &str, close: &str| format!("{}{}", open.repeat(10_000), close.repeat(10_000));
    let deep = "not valid JSON: recursion limit exceeded";
    #[rustfmt::skip]
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing",               b"".to_vec(),                               "not valid JSON: EOF while parsing a value at line 1 column 0"),
        ("white space",           b" ".to_vec(),                              "not valid JSON: EOF while parsing a value at line 1 column 1"),
        ("a list",                b"[]".to_vec(),                             "must be a JSON object, not a list"),
        ("a string",              b"\"text\"".to_vec(),                       "must be a JSON object, not the string \"text\""),
        ("null",                  b"null".to_vec(),                           "must be a JSON object, not null"),
        ("a number",              b"-1".to_vec(),                             "must be a JSON object, not -1"),
        ("an open object",        b"{".to_vec(),                              "not valid JSON: EOF while parsing an object at line 1 column 1"),
        ("an open string",        br#"{"text": "a"#.to_vec(),                 "not valid JSON: EOF while parsing a string at line 1 column 11"),
        ("an open list",          br#"{"input_ids": [1,"#.to_vec(),           "not valid JSON: EOF while parsing a value at line 1 column 17"),
        ("a last comma",          br#"{"input_ids": [1,]}"#.to_vec(),         "not valid JSON: trailing comma at line 1 column 18"),
        ("another last comma",    br#"{"text": "a",}"#.to_vec(),              "not valid JSON: trailing comma at line 1 column 14"),
        ("a key without quotes",  br#"{text: "a"}"#.to_vec(),                 "not valid JSON: key must be a string at line 1 column 2"),
        ("single quotes",         b"{'text': 'a'}".to_vec(),                 "not valid JSON: key must be a string at line 1 column 2"),
        ("a comment",             b"{} // {}".to_vec(),                      "not valid JSON: trailing characters at line 1 column 4"),
        ("two bodies",            b"{}{}".to_vec(),                          "not valid JSON: trailing characters at line 1 column 3"),
        ("a zero byte",           b"{}\0".to_vec(),                           "not valid JSON: trailing characters at line 1 column 3"),
        ("a byte order mark",     b"\xef\xbb\xbf{}".to_vec(),                 "not valid JSON: expected value at line 1 column 1"),
        ("NaN",                   br#"{"routed_dp_rank": NaN}"#.to_vec(),     "not valid JSON: expected value at line 1 column 20"),
        ("infinity",              br#"{"x": Infinity}"#.to_vec(),             "not valid JSON: expected value at line 1 column 7"),
        ("minus infinity",        br#"{"x": -Infinity}"#.to_vec(),            "not valid JSON: invalid number at line 1 column 8"),
        ("1e999",                 br#"{"routed_dp_rank": 1e999}"#.to_vec(),   "not valid JSON: number out of range at line 1 column 24"),
        ("1e999, unknown",        br#"{"x": [1e999]}"#.to_vec(),              "not valid JSON: number out of range at line 1 column 12"),
        ("1e999, sampling",       br#"{"sampling_params": {"top_p": 1e999}}"#.to_vec(), "not valid JSON: number out of range at line 1 column 35"),
        ("a leading zero",        br#"{"input_ids": [01]}"#.to_vec(),         "not valid JSON: invalid number at line 1 column 17"),
        ("a raw line break",      b"{\"text\": \"a\nb\"}".to_vec(),           "not valid JSON: control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0"),
        ("half a pair",           br#"{"text": "\ud83d"}"#.to_vec(),          "not valid JSON: unexpected end of hex escape at line 1 column 17"),
        ("bytes that are no text", b"{\"text\": \"\xff\"}".to_vec(),          "not valid JSON: invalid unicode code point at line 1 column 11"),
        ("in an unknown value",   b"{\"x\": \"\xff\"}".to_vec(),              "not valid JSON: invalid unicode code point at line 1 column 8"),
        ("in a key",              b"{\"\xff\": 1}".to_vec(),                  "not valid JSON: invalid unicode code point at line 1 column 3"),
        ("10,000 lists",          nested("[", "]").into_bytes(),              "must be a JSON object, not a list"),
        ("10,000 unknown lists",  format!(r#"{{"x": {}}}"#, nested("[", "]")).into_bytes(), deep),
        ("10,000 objects",        format!(r#"{{"sampling_params": {}}}"#, nested(r#"{"a":"#, "}")).into_bytes(), deep),
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

/// Null is as if the field were not there, whichever it is.
#[test]
fn null_is_absent() {
    for field in FIELDS {
        let nothing = read(&json!({ field: null }).to_string());
        assert_eq!(Ok(GenerateBody::default()), nothing, "{field}");
    }
}

/// Every field that is listed has its place in the body: but for media, a wrong value
/// does not go unnoticed.
#[test]
fn no_field_is_overlooked() {
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
fn lists_have_an_end() {
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

/// What is kept as a tree may not take many times the memory of a body.
#[test]
fn trees_have_an_end() {
    let objects = |count| {
        format!(
            r#"{{"sampling_params": {{"custom_params": {{"a": [{}]}}}}}}"#,
            vec![r#"{"a":1}"#; count].join(",")
        )
    };
    assert!(read(&objects(80_000)).is_ok());
    let rule = "takes more memory than one call may; send less of it";
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

/// However deep and long-named the place, the text about it is short.
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
    /// Whatever stands at whatever field, alone or beside a prompt, becomes requests or
    /// is refused in few words.
    #[test]
    fn any_value_at_any_field(
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

    /// So do any bytes, and a good body with a few bytes changed.
    #[test]
    fn any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut good = br#"{"rid":["a","b"],"input_ids":[[1,2],[3]],"sampling_params":[{"n":2},null],"bootstrap_room":5}"#.to_vec();
        for (index, byte) in damage {
            let index = index.index(good.len());
            good[index] = byte;
        }
        for body in [bytes, good] {
            if let Err(error) = requests(&body) {
                prop_assert_eq!(400, error.status());
                prop_assert!(error.to_string().len() < 2000, "{}", error);
            }
        }
    }
}
