//! Reached as its folder says.
/// One.
pub fn one() -> i32 { 1 }
