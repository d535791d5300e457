//! The name of the folder says how `extension` reaches this package, if at all.
/// One.
pub fn one() -> i32 { 1 }
