//! A package that inherits values from the root of its own workspace.
/// One.
pub fn one() -> i32 { 1 }
