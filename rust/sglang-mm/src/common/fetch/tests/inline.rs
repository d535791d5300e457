//! Inline sources.

use super::{budgeted, fetch, open};
use crate::common::fetch::{ByteBudget, FetchPolicy};

#[test]
fn inline_sources_are_decoded_as_base64() {
    #[rustfmt::skip]
    let cases: [(&str, &str, Result<&str, &str>); 19] = [
        ("data",                       "data:image/png;base64,cGl4ZWxz", Ok("pixels")),
        ("no type",                    "data:;base64,cGl4ZWxz", Ok("pixels")),
        ("the base64 flag is ignored", "data:image/png,cGl4ZWxz", Ok("pixels")),
        ("the type is ignored",        "data:text/html;base64,cGl4ZWxz", Ok("pixels")),
        ("white space at the ends",    "data:,\n cGl4ZWxz \r\n", Ok("pixels")),
        ("no data",                    "data:,", Ok("")),
        ("bare",                       "cGl4ZWxz", Ok("pixels")),
        ("empty",                      "", Ok("")),
        ("no comma",                   "data:image/png;base64", Err("media fetch: malformed data: URL: no comma")),
        ("a second comma",             "data:a,b,cGl4ZWxz", Err("media fetch: data: URL: base64 decode error: ")),
        ("line ends inside",           "data:,cGl4\r\nZWxz", Err("media fetch: data: URL: base64 decode error: ")),
        ("no padding",                 "data:,cGl4ZWw", Err("media fetch: data: URL: base64 decode error: ")),
        ("one letter too many",        "cGl4ZWxzc", Err("media fetch: inline base64: base64 decode error: ")),
        ("url-safe letters",           "-_-_", Err("media fetch: inline base64: base64 decode error: ")),
        ("both alphabets",             "+_-/", Err("media fetch: inline base64: base64 decode error: ")),
        ("a relative path",            "images/a.png", Err("media fetch: inline base64: base64 decode error: ")),
        ("case of the scheme",         "HTTP://127.0.0.1/", Err("media fetch: inline base64: base64 decode error: ")),
        ("case of data",               "DATA:,cGl4ZWxz", Err("media fetch: inline base64: base64 decode error: ")),
        ("another scheme",             "ftp://h.x/a.png", Err("media fetch: inline base64: base64 decode error: ")),
    ];
    for (name, source, expected) in cases {
        for policy in [open(), FetchPolicy::closed()] {
            match (expected, fetch(&policy, source)) {
                (Ok(bytes), got) => assert_eq!(Ok(bytes.as_bytes().to_vec()), got, "{name}"),
                (Err(words), got) => {
                    let error = got.expect_err(name);
                    assert!(error.starts_with(words), "{name}: {error}");
                }
            }
        }
    }
}

/// The budget is charged with the decoded bytes, not with the text or its padding.
#[test]
fn decoded_bytes_are_charged_exactly() {
    #[rustfmt::skip]
    let cases = [
        ("no padding",            "data:,cGl4", 3, true),
        ("one pad",               "cGk=",       2, true),
        ("two pads",              " cA== ",     1, true),
        ("one byte over",         "data:,cGl4", 2, false),
        ("no budget",             "cA==",       0, false),
        ("empty",                 "data:,",     0, true),
    ];
    for (name, source, bytes, fits) in cases {
        let got = budgeted(|budget: &ByteBudget| open().fetch(source, budget), bytes);
        match got {
            Ok(_) => assert!(fits, "{name}"),
            Err(error) => assert!(
                !fits && error.ends_with("exceeds the request media byte budget"),
                "{name}: {error}"
            ),
        }
    }
}

/// The cap for files and responses does not apply to inline data.
#[test]
fn inline_data_may_exceed_the_stream_cap() {
    let source = "AAAA".repeat(24 << 20);
    let got = budgeted(
        |budget: &ByteBudget| open().fetch(&source, budget),
        72 << 20,
    );
    assert_eq!(72 << 20, got.unwrap().len());
}
