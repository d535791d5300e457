//! A column: one value for the whole call, or one value per prompt.

use std::{borrow::Cow, iter::RepeatN, vec};

use serde::de::{MapAccess, SeqAccess};

use super::limits::{CopyBudget, MAX_ROWS};
use crate::{
    error::RequestError,
    message::json::{At, Scalar, Shape, extend},
};

/// One field of a body.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Column<T> {
    /// The field is absent or null.
    #[default]
    Absent,
    /// One value for all prompts.
    One(T),
    /// One value per prompt; null means the default.
    Many(Vec<Option<T>>),
}

/// Heap memory of a value: the bytes that a clone allocates.
pub(super) trait Heap {
    fn heap_bytes(&self) -> usize;
}

impl Heap for bool {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl Heap for i64 {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl Heap for String {
    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

impl Heap for Vec<i32> {
    fn heap_bytes(&self) -> usize {
        size_of_val(self.as_slice())
    }
}

impl<T> Column<T> {
    fn from_option(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::One)
    }

    /// Fails if the list does not have exactly one value per prompt.
    pub(super) fn check_len(&self, field: &str, prompts: usize) -> Result<(), RequestError> {
        match self {
            Self::Many(values) if values.len() != prompts => Err(RequestError::field(
                field,
                format!(
                    "`{field}` has {} elements, which does not match batch size {prompts}",
                    values.len()
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl Column<i64> {
    /// Fails if a number is below `min`.
    pub(super) fn check_min(&self, field: &str, min: i64) -> Result<(), RequestError> {
        let low = |number: &i64| *number < min;
        let (path, number) = match self {
            Self::One(number) if low(number) => (field.to_owned(), *number),
            Self::Many(numbers) => {
                let mut numbers = numbers.iter().enumerate();
                let found = numbers.find_map(|(i, n)| n.filter(low).map(|n| (i, n)));
                let Some((i, number)) = found else {
                    return Ok(());
                };
                (format!("{field}[{i}]"), number)
            }
            _ => return Ok(()),
        };
        let message = format!("`{path}` must be at least {min}, not {number}");
        Err(RequestError::field(path, message))
    }
}

impl<T: Clone + Heap> Column<T> {
    /// The value of each prompt, in order. Charges the copies of a shared value to `copies`.
    pub(super) fn rows(
        self,
        field: &str,
        prompts: usize,
        copies: &mut CopyBudget,
    ) -> Result<Values<T>, RequestError> {
        self.check_len(field, prompts)?;
        Ok(match self {
            Self::Absent => Values::Same(std::iter::repeat_n(None, prompts)),
            Self::One(value) => {
                if prompts > 1 {
                    copies.pay(field, value.heap_bytes(), prompts)?;
                }
                Values::Same(std::iter::repeat_n(Some(value), prompts))
            }
            Self::Many(values) => Values::Each(values.into_iter()),
        })
    }
}

/// Iterator over the values of a column, one per prompt.
pub(super) enum Values<T> {
    Same(RepeatN<Option<T>>),
    Each(vec::IntoIter<Option<T>>),
}

impl<T: Clone> Values<T> {
    /// The value of the next prompt.
    pub(super) fn row(&mut self) -> Option<T> {
        match self {
            Self::Same(values) => values.next(),
            Self::Each(values) => values.next(),
        }
        .flatten()
    }
}

/// A value of shape `S`, or a list of such values.
#[derive(Clone, Copy)]
pub(super) struct OneOrMany<S>(pub S);

impl<'de, T, S> Shape<'de> for OneOrMany<S>
where
    S: Shape<'de, Value = Option<T>> + Copy,
{
    type Value = Column<T>;

    fn expected() -> Cow<'static, str> {
        format!("{}, or a list of one for each prompt", S::expected()).into()
    }

    fn scalar(self, scalar: Scalar<'de>) -> Result<Column<T>, Scalar<'de>> {
        self.0.scalar(scalar).map(Column::from_option)
    }

    fn array<A: SeqAccess<'de>>(self, at: At, list: A) -> Result<Column<T>, A::Error> {
        let mut values = Vec::new();
        extend(&mut values, at, list, MAX_ROWS, || self.0)?;
        Ok(Column::Many(values))
    }

    fn object<A: MapAccess<'de>>(self, at: At, object: A) -> Result<Column<T>, A::Error> {
        self.0.object(at, object).map(Column::from_option)
    }
}
