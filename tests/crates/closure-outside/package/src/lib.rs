//! Inherits from its own root.
/// One.
pub fn one() -> i32 { 1 }
