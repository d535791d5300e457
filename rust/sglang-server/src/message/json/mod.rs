//! Reads JSON from clients directly into typed values, without an intermediate tree.
//!
//! A [`Shape`] defines which values one place of a body accepts. A value that does not fit is
//! refused with its [`Path`] and an excerpt of it. Values that are not used are not kept.
//!
//! `serde_path_to_error` does not fit here: it gives the path only after reading has failed,
//! while rules and limits refuse values during it, and it copies every object key to the heap.
//!
//! Invariants: any input gives a value or an error message of bounded length. Memory use is
//! proportional to the length of the input.

mod path;
mod scalar;
mod shape;
mod tree;

pub(super) use path::Path;
pub(super) use scalar::{FromScalar, Scalar, mismatch};
pub(super) use shape::{At, Discard, Optional, Required, Shape, extend, read};
pub(super) use tree::OptionalObject;

/// Arbitrary small JSON trees that include the limits of each type.
#[cfg(test)]
pub(super) fn any_json() -> impl proptest::strategy::Strategy<Value = serde_json::Value> {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    let limits = [
        json!(null),
        json!(0),
        json!(-1),
        json!(1 << 31),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(5.0),
        json!(1e300),
        json!(""),
        json!("x".repeat(10_000)),
        json!("\u{10ffff}".repeat(1000)),
        json!([]),
        json!({}),
    ];
    let leaf = prop_oneof![
        proptest::sample::select(limits.to_vec()),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}
