pub const WORD: &str = "maker-1";
