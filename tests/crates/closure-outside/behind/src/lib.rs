//! Reached through another workspace.
/// One.
pub fn one() -> i32 { 1 }
