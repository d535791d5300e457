//! A dependency of `package`, in the same workspace.
/// One.
pub fn one() -> i32 { 1 }
