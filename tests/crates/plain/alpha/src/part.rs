pub const PART: &str = "part-1";
