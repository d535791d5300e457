const WORDS: &[&str] = &["lone-1"];

pymod::module!(PyInit_lone, "lone", WORDS.join("+"));
