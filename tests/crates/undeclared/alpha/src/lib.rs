include!(concat!(env!("OUT_DIR"), "/generated.rs"));

pymod::module!(
    PyInit_alpha,
    "alpha",
    [
        include_str!("../README.md").trim(),
        include_str!("../../texts/outside.txt").trim(),
        include_str!("../../../beyond.txt").trim(),
        option_env!("FX_SEEN").unwrap_or("unset"),
        env!("FX_MADE"),
        GENERATED,
        helper::WORD,
        helper::SEEN,
    ]
    .join(" ")
);
