mod part;

const WORDS: &[&str] = &["shared-1", part::WORD];

pub fn words() -> String {
    let seen = option_env!("FX_SEEN").unwrap_or("unseen").to_owned();
    [WORDS.join("+"), deep::switches!(), seen, deep::words()].join(" ")
}
