mod part;

include!(concat!(env!("OUT_DIR"), "/listed.rs"));

const WORDS: &[&str] = &["right-1", part::WORD];

pymod::module!(
    PyInit_right,
    "right",
    [WORDS.join("+"), deep::switches!(), LISTED.to_owned(), shared::words()].join(" ")
);
