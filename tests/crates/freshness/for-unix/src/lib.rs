pub const WORD: &str = "for-unix-1";
