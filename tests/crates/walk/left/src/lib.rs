mod part;

const WORDS: &[&str] = &["left-1", part::WORD];

pymod::module!(
    PyInit_left,
    "left",
    [
        WORDS.join("+"),
        deep::switches!(),
        option_env!("FX_FLAVOUR").unwrap_or("plain").to_owned(),
        include_str!("../../texts/declared.txt").trim().to_owned(),
        include_str!("../../texts/undeclared.txt").trim().to_owned(),
        include_str!("../README.md").trim().to_owned(),
        shared::words(),
    ]
    .join(" ")
);
