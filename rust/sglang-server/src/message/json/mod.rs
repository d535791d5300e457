//! Reading JSON from clients: one value at a time, from the text, without a tree between.
//!
//! A [`Shape`] says what one place of a body may hold. What does not fit is refused with
//! the [`Path`] of the value and a sight of it; what does not matter leaves no trace.
//!
//! Invariant: whatever the bytes are, reading ends in a value or in a refusal of bounded
//! length, and takes memory in proportion to the bytes.

mod path;
mod scalar;
mod shape;
mod tree;

pub(super) use path::Path;
pub(super) use scalar::{FromScalar, Scalar, mismatch};
pub(super) use shape::{At, Discard, Exactly, Optional, Shape, extend, read};
pub(super) use tree::OptionalObject;

/// Any tree of JSON, small enough to read, with values at the borders of their types.
#[cfg(test)]
pub(super) fn any_json() -> impl proptest::strategy::Strategy<Value = serde_json::Value> {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    let borders = [
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
        proptest::sample::select(borders.to_vec()),
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
