//! Token ids: one list for all prompts, or one list per prompt.

use std::borrow::Cow;

use serde::de::SeqAccess;

use super::{column::Column, limits::MAX_ROWS};
use crate::message::json::{At, FromScalar as _, Required, Scalar, Shape, extend};

/// A list of ids, or a list of such lists. The first element decides which.
pub(super) struct Ids;

/// The list of ids of one prompt, or null.
struct Row;

/// The first element: an id or a list of ids.
struct First;

enum Element {
    Id(i32),
    Row(Option<Vec<i32>>),
}

impl<'de> Shape<'de> for Ids {
    type Value = Column<Vec<i32>>;

    fn expected() -> Cow<'static, str> {
        "a list of integers, or a list of such lists".into()
    }

    fn scalar(self, scalar: Scalar<'de>) -> Result<Self::Value, Scalar<'de>> {
        match scalar {
            Scalar::Null => Ok(Column::Absent),
            other => Err(other),
        }
    }

    fn array<A: SeqAccess<'de>>(self, at: At, mut list: A) -> Result<Self::Value, A::Error> {
        match list.next_element_seed(at.index(0).expect(First))? {
            None => Ok(Column::One(Vec::new())),
            Some(Element::Id(id)) => ids(vec![id], at, list).map(Column::One),
            Some(Element::Row(row)) => {
                let mut rows = vec![row];
                extend(&mut rows, at, list, MAX_ROWS, || Row)?;
                Ok(Column::Many(rows))
            }
        }
    }
}

impl<'de> Shape<'de> for Row {
    type Value = Option<Vec<i32>>;

    fn expected() -> Cow<'static, str> {
        "a list of integers".into()
    }

    fn scalar(self, scalar: Scalar<'de>) -> Result<Self::Value, Scalar<'de>> {
        match scalar {
            Scalar::Null => Ok(None),
            other => Err(other),
        }
    }

    fn array<A: SeqAccess<'de>>(self, at: At, list: A) -> Result<Self::Value, A::Error> {
        ids(Vec::new(), at, list).map(Some)
    }
}

impl<'de> Shape<'de> for First {
    type Value = Element;

    fn expected() -> Cow<'static, str> {
        "an integer of at most 32 bits or a list of them".into()
    }

    fn scalar(self, scalar: Scalar<'de>) -> Result<Element, Scalar<'de>> {
        match scalar {
            Scalar::Null => Ok(Element::Row(None)),
            other => i32::from_scalar(other).map(Element::Id),
        }
    }

    fn array<A: SeqAccess<'de>>(self, at: At, list: A) -> Result<Element, A::Error> {
        Row.array(at, list).map(Element::Row)
    }
}

/// Appends the rest of the list to `ids`.
fn ids<'de, A: SeqAccess<'de>>(mut ids: Vec<i32>, at: At, list: A) -> Result<Vec<i32>, A::Error> {
    extend(&mut ids, at, list, usize::MAX, Required::new)?;
    Ok(ids)
}
