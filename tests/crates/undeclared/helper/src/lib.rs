pub const WORD: &str = include_str!("../../texts/helped.txt").trim_ascii();
pub const SEEN: &str = match option_env!("FX_HELPER") {
    Some(value) => value,
    None => "unset",
};
