pymod::module!(
    PyInit_alpha,
    "alpha",
    [
        include_str!("inside.txt").trim(),
        include_str!("../../shared/outside.txt").trim(),
        env!("MADE"),
        for_unix::WORD,
        inherited::WORD,
        normal::WORD,
        option_env!("FX_FLAVOUR").unwrap_or("plain"),
        if cfg!(loud) { "loud" } else { "quiet" },
        if cfg!(debug_assertions) { "checked" } else { "unchecked" },
    ]
    .join(" ")
);
