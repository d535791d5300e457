mod part;

const WORDS: &[&str] = &["shared-1", part::WORD];

pub fn words() -> String {
    [WORDS.join("+"), deep::switches!(), deep::words()].join(" ")
}
