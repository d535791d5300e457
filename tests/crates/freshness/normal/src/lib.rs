pub const WORD: &str = "normal-1";
