//! The crate that depends on all the others.
/// One.
pub fn one() -> i32 { 1 }
