//! Single JSON values, and the error for a value of the wrong type.

use std::{borrow::Cow, fmt};

use serde_json::Value;

use super::Path;
use crate::error::RequestError;

/// A JSON value without the content of lists and objects.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::message) enum Scalar<'a> {
    Null,
    Bool(bool),
    /// A number without decimal point or exponent, in the range of `i64` or `u64`.
    Int(i128),
    Float(f64),
    Text(Cow<'a, str>),
    Array,
    Object,
}

impl From<Value> for Scalar<'static> {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(number) => number.as_i128().map_or_else(
                || Self::Float(number.as_f64().unwrap_or(f64::NAN)),
                Self::Int,
            ),
            Value::String(text) => Self::Text(text.into()),
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }
}

impl fmt::Display for Scalar<'_> {
    /// The value as shown in a message; long strings are cut.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Text(text) => match text.char_indices().nth(100) {
                Some((end, _)) => write!(f, "the string {:?}...", &text[..end]),
                None => write!(f, "the string {text:?}"),
            },
            Self::Array => f.write_str("a list"),
            Self::Object => f.write_str("an object"),
        }
    }
}

/// A type that can be converted from a scalar.
pub(in crate::message) trait FromScalar: Sized {
    /// Description of valid values, to complete "must be ...".
    const EXPECTED: &'static str;

    /// The value. Returns the scalar if it does not fit.
    fn from_scalar(scalar: Scalar<'_>) -> Result<Self, Scalar<'_>>;
}

impl FromScalar for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_scalar(scalar: Scalar<'_>) -> Result<Self, Scalar<'_>> {
        match scalar {
            Scalar::Bool(value) => Ok(value),
            other => Err(other),
        }
    }
}

impl FromScalar for i64 {
    const EXPECTED: &'static str = "an integer of at most 64 bits";

    fn from_scalar(scalar: Scalar<'_>) -> Result<Self, Scalar<'_>> {
        match scalar {
            Scalar::Int(number) => number.try_into().map_err(|_| Scalar::Int(number)),
            other => Err(other),
        }
    }
}

impl FromScalar for i32 {
    const EXPECTED: &'static str = "an integer of at most 32 bits";

    #[inline]
    fn from_scalar(scalar: Scalar<'_>) -> Result<Self, Scalar<'_>> {
        match scalar {
            Scalar::Int(number) => number.try_into().map_err(|_| Scalar::Int(number)),
            other => Err(other),
        }
    }
}

impl FromScalar for f64 {
    const EXPECTED: &'static str = "a number";

    fn from_scalar(scalar: Scalar<'_>) -> Result<Self, Scalar<'_>> {
        match scalar {
            Scalar::Int(number) => Ok(number as Self),
            Scalar::Float(number) => Ok(number),
            other => Err(other),
        }
    }
}

impl FromScalar for String {
    const EXPECTED: &'static str = "a string";

    fn from_scalar(scalar: Scalar<'_>) -> Result<Self, Scalar<'_>> {
        match scalar {
            Scalar::Text(text) => Ok(text.into_owned()),
            other => Err(other),
        }
    }
}

/// The error for value `got` at `path`, where `expected` is required.
#[cold]
pub(in crate::message) fn mismatch(path: &Path, expected: &str, got: &Scalar) -> RequestError {
    if let Path::Body = path {
        return RequestError::invalid(format!("the body must be {expected}, not {got}"));
    }
    let path = path.shown();
    let message = format!("`{path}` must be {expected}, not {got}");
    RequestError::field(path, message)
}
