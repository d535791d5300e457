//! Shapes: the values that a place in a body accepts. One serde visitor reads all of them.

use std::{borrow::Cow, cell::Cell, fmt, marker::PhantomData};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{FromScalar, Path, Scalar, mismatch};
use crate::error::RequestError;

/// The place of a value, and the cell for its error. The cell exists because serde's errors can
/// carry only text.
#[derive(Clone, Copy)]
pub(in crate::message) struct At<'p> {
    path: Path<'p>,
    refusal: &'p Cell<Option<RequestError>>,
}

impl<'p> At<'p> {
    /// The place of the value under `key` in this object.
    pub(in crate::message) fn key(&'p self, key: &'p str) -> Self {
        let path = self.path.key(key);
        Self { path, ..*self }
    }

    /// The place of element `index` in this list.
    pub(in crate::message) fn index(&'p self, index: usize) -> Self {
        let path = self.path.index(index);
        Self { path, ..*self }
    }

    /// The serde seed that reads a value of `shape` at this place.
    pub(in crate::message) fn expect<S>(self, shape: S) -> Place<'p, S> {
        Place { at: self, shape }
    }

    /// Stops reading: the value is `got`, but `expected` is required.
    #[cold]
    pub(in crate::message) fn mismatch<E: Error>(&self, expected: &str, got: &Scalar) -> E {
        self.refusal.set(Some(mismatch(&self.path, expected, got)));
        E::custom("refused")
    }

    /// Stops reading: the value breaks a rule.
    #[cold]
    pub(in crate::message) fn refuse<E: Error>(&self, rule: impl fmt::Display) -> E {
        let path = self.path.shown();
        let message = format!("`{path}` {rule}");
        self.refusal.set(Some(RequestError::field(path, message)));
        E::custom("refused")
    }
}

/// The values that one place accepts.
pub(in crate::message) trait Shape<'de>: Sized {
    /// The result of reading.
    type Value;

    /// Description of valid values, to complete "must be ...".
    fn expected() -> Cow<'static, str>;

    /// Converts a scalar. Returns it if it does not fit.
    fn scalar(self, scalar: Scalar<'de>) -> Result<Self::Value, Scalar<'de>>;

    /// Reads a list.
    fn array<A: SeqAccess<'de>>(self, at: At, _: A) -> Result<Self::Value, A::Error> {
        Err(at.mismatch(&Self::expected(), &Scalar::Array))
    }

    /// Reads an object.
    fn object<A: MapAccess<'de>>(self, at: At, _: A) -> Result<Self::Value, A::Error> {
        Err(at.mismatch(&Self::expected(), &Scalar::Object))
    }
}

/// A place and its shape: the seed and visitor for serde.
pub(in crate::message) struct Place<'p, S> {
    at: At<'p>,
    shape: S,
}

/// Reads `json` as one value of `shape`.
///
/// # Errors
///
/// Names the first invalid value, or the position of a JSON syntax error.
pub(in crate::message) fn read<'de, S: Shape<'de>>(
    json: &'de [u8],
    shape: S,
) -> Result<S::Value, RequestError> {
    let refusal = Cell::new(None);
    let at = At {
        path: Path::Body,
        refusal: &refusal,
    };
    let mut json = serde_json::Deserializer::from_slice(json);
    let value = at
        .expect(shape)
        .deserialize(&mut json)
        .and_then(|value| json.end().map(|()| value));
    value.map_err(|error| {
        let broken = || RequestError::invalid(format!("the body is not valid JSON: {error}"));
        refusal.take().unwrap_or_else(broken)
    })
}

impl<'de, S: Shape<'de>> DeserializeSeed<'de> for Place<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, S: Shape<'de>> Place<'_, S> {
    fn scalar<E: Error>(self, scalar: Scalar<'de>) -> Result<S::Value, E> {
        let refused = |got| self.at.mismatch(&S::expected(), &got);
        self.shape.scalar(scalar).map_err(refused)
    }
}

impl<'de, S: Shape<'de>> Visitor<'de> for Place<'_, S> {
    type Value = S::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&S::expected())
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        self.scalar(Scalar::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        self.scalar(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        self.scalar(Scalar::Int(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        self.scalar(Scalar::Int(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        self.scalar(Scalar::Float(number))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        self.scalar(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        self.scalar(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        self.shape.array(self.at, list)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        self.shape.object(self.at, object)
    }
}

/// Appends the rest of a list to `values`; each element has `shape`. Fails if the list has more
/// than `most` elements.
pub(in crate::message) fn extend<'de, S, A, T>(
    values: &mut Vec<T>,
    at: At,
    mut list: A,
    most: usize,
    shape: impl Fn() -> S,
) -> Result<(), A::Error>
where
    S: Shape<'de, Value = T>,
    A: SeqAccess<'de>,
{
    while let Some(value) = list.next_element_seed(at.index(values.len()).expect(shape()))? {
        if values.len() == most {
            return Err(at.refuse(format_args!("has more than {most} elements")));
        }
        values.push(value);
    }
    Ok(())
}

/// Any value; it must be valid JSON, but is not kept.
pub(in crate::message) struct Discard;

impl<'de> Shape<'de> for Discard {
    type Value = ();

    fn expected() -> Cow<'static, str> {
        "anything".into()
    }

    fn scalar(self, _: Scalar<'de>) -> Result<(), Scalar<'de>> {
        Ok(())
    }

    fn array<A: SeqAccess<'de>>(self, at: At, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(at.expect(Self))?.is_some() {}
        Ok(())
    }

    fn object<A: MapAccess<'de>>(self, at: At, mut object: A) -> Result<(), A::Error> {
        while object.next_key_seed(at.expect(Self))?.is_some() {
            object.next_value_seed(at.expect(Self))?;
        }
        Ok(())
    }
}

/// A `T`; null is refused.
pub(in crate::message) struct Required<T>(PhantomData<T>);

/// A `T` or null.
pub(in crate::message) struct Optional<T>(PhantomData<T>);

// Not derived: a derive would require `T: Copy`.
impl<T> Copy for Optional<T> {}

impl<T> Clone for Optional<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Required<T> {
    pub(in crate::message) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Optional<T> {
    pub(in crate::message) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, T: FromScalar> Shape<'de> for Required<T> {
    type Value = T;

    fn expected() -> Cow<'static, str> {
        T::EXPECTED.into()
    }

    #[inline]
    fn scalar(self, scalar: Scalar<'de>) -> Result<T, Scalar<'de>> {
        T::from_scalar(scalar)
    }
}

impl<'de, T: FromScalar> Shape<'de> for Optional<T> {
    type Value = Option<T>;

    fn expected() -> Cow<'static, str> {
        T::EXPECTED.into()
    }

    fn scalar(self, scalar: Scalar<'de>) -> Result<Option<T>, Scalar<'de>> {
        match scalar {
            Scalar::Null => Ok(None),
            other => T::from_scalar(other).map(Some),
        }
    }
}
