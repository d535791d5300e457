pub const WORD: &str = "part-1";
