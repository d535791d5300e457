mod part;

const WORDS: &[&str] = &["right-1", part::WORD];

pymod::module!(PyInit_right, "right", [WORDS.join("+"), deep::switches!(), shared::words()].join(" "));
