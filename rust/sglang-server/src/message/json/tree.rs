//! Objects that are kept as they are, within a budget.
//!
//! A tree takes many times the memory of its text (`{"a":1},` of eight bytes is a node
//! of 640), so it is paid for while it grows. Strings are not: they are as long as they
//! were.

use std::{borrow::Cow, cell::Cell};

use serde::de::{MapAccess, SeqAccess};
use serde_json::{Map, Value};

use super::{At, Scalar, Shape};

/// Bytes that an object takes once it has a key: one node of a B-tree.
const NODE: usize = 640;
/// Bytes that a key and its value take: their share of a node that is half full.
const KEY: usize = 128;
/// Bytes of an element, in a list that may have room for as many again.
const ELEMENT: usize = 64;

/// An object, or null for none. Keys may not repeat, at any depth.
#[derive(Clone, Copy)]
pub(in crate::message) struct OptionalObject<'b> {
    /// Bytes that trees may still take.
    pub left: &'b Cell<usize>,
}

/// Any value, kept.
#[derive(Clone, Copy)]
struct Tree<'b> {
    left: &'b Cell<usize>,
}

impl<'de> Shape<'de> for OptionalObject<'_> {
    type Value = Option<Map<String, Value>>;

    fn expected() -> Cow<'static, str> {
        "an object".into()
    }

    fn scalar(self, scalar: Scalar<'de>) -> Result<Self::Value, Scalar<'de>> {
        match scalar {
            Scalar::Null => Ok(None),
            other => Err(other),
        }
    }

    fn object<A: MapAccess<'de>>(self, at: At, object: A) -> Result<Self::Value, A::Error> {
        Tree { left: self.left }.map(at, object).map(Some)
    }
}

impl<'de> Shape<'de> for Tree<'_> {
    type Value = Value;

    fn expected() -> Cow<'static, str> {
        "anything".into()
    }

    fn scalar(self, scalar: Scalar<'de>) -> Result<Value, Scalar<'de>> {
        Ok(match scalar {
            Scalar::Null => Value::Null,
            Scalar::Bool(value) => Value::Bool(value),
            Scalar::Int(number) => i64::try_from(number)
                .map(Value::from)
                .or_else(|_| u64::try_from(number).map(Value::from))
                .map_err(|_| Scalar::Int(number))?,
            Scalar::Float(number) => Value::from(number),
            Scalar::Text(text) => Value::String(text.into_owned()),
            other => return Err(other),
        })
    }

    fn array<A: SeqAccess<'de>>(self, at: At, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(at.index(values.len()).expect(self))? {
            self.pay(at, ELEMENT)?;
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn object<A: MapAccess<'de>>(self, at: At, object: A) -> Result<Value, A::Error> {
        self.map(at, object).map(Value::Object)
    }
}

impl Tree<'_> {
    fn map<'de, A>(self, at: At, mut object: A) -> Result<Map<String, Value>, A::Error>
    where
        A: MapAccess<'de>,
    {
        let mut map = Map::new();
        while let Some(key) = object.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(at.key(&key).refuse("is given twice"));
            }
            let value = object.next_value_seed(at.key(&key).expect(self))?;
            let node = if map.is_empty() { NODE } else { 0 };
            self.pay(at, node + KEY)?;
            map.insert(key, value);
        }
        Ok(map)
    }

    fn pay<E: serde::de::Error>(self, at: At, bytes: usize) -> Result<(), E> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(at.refuse("takes more memory than one call may; send less of it")),
        }
    }
}
