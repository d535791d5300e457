pub const WORD: &str = "middle-1";
