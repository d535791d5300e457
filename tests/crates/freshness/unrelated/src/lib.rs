pub const WORD: &str = "unrelated-1";
