mod dist;
mod env;
mod part;
mod target;
mod venv;

fn value() -> String {
    [
        "root-1",
        part::WORD,
        dist::WORD,
        self::env::WORD,
        target::WORD,
        venv::WORD,
        include_str!("inside.txt").trim(),
        include_str!("../../shared/outside.txt").trim(),
        env!("MADE"),
        for_unix::WORD,
        inherited::WORD,
        normal::WORD,
        option_env!("FX_FLAVOUR").unwrap_or("plain"),
        env!("COMPILER"),
        env!("PLACE"),
        if cfg!(loud) { "loud" } else { "quiet" },
        if cfg!(debug_assertions) { "checked" } else { "unchecked" },
    ]
    .join(" ")
}

pymod::module!(PyInit_alpha, "alpha", value());
