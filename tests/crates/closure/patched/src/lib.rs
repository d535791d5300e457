//! Replaces a package of the registry, by `[patch]`.
/// One.
pub fn one() -> i32 { 1 }
