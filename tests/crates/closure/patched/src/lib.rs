//! Takes the place of a package from the registry.
/// One.
pub fn one() -> i32 { 1 }
