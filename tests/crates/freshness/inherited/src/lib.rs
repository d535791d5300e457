pub const WORD: &str = "inherited-1";
