//! Reads objects into trees, within a memory budget.
//!
//! A tree takes many times the memory of its text: the eight bytes of `{"a":1},` become a node of
//! 640 bytes. So every node is charged to the budget while the tree is read. Strings are not
//! charged: they take no more memory than their text.

use std::{borrow::Cow, cell::Cell};

use serde::de::{MapAccess, SeqAccess};
use serde_json::{Map, Value};

use super::{At, Scalar, Shape};

/// Bytes of an object with at least one key: one B-tree node.
const NODE: usize = 640;
/// Bytes of a key and its value: their share of a half-full node.
const KEY: usize = 128;
/// Bytes of a list element; the list may have twice the capacity that it needs.
const ELEMENT: usize = 64;

/// An object or null. Duplicate keys are refused, at any depth.
#[derive(Clone, Copy)]
pub(in crate::message) struct OptionalObject<'b> {
    /// Bytes that trees may still take.
    pub budget: &'b Cell<usize>,
}

/// Any value, kept as a tree.
#[derive(Clone, Copy)]
struct Tree<'b> {
    budget: &'b Cell<usize>,
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
        Tree {
            budget: self.budget,
        }
        .map(at, object)
        .map(Some)
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
        match self.budget.get().checked_sub(bytes) {
            Some(left) => {
                self.budget.set(left);
                Ok(())
            }
            None => Err(at.refuse("needs more memory than one call may use; send less")),
        }
    }
}
