//! A value for the whole call, or one for each prompt.

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
    /// Nothing is said.
    #[default]
    Absent,
    /// The same for all prompts.
    One(T),
    /// One for each prompt; null leaves it open.
    Many(Vec<Option<T>>),
}

/// What a value has outside of itself, and a copy has again.
pub(super) trait Heap {
    /// Bytes of it.
    fn heap(&self) -> usize;
}

impl Heap for bool {
    fn heap(&self) -> usize {
        0
    }
}

impl Heap for i64 {
    fn heap(&self) -> usize {
        0
    }
}

impl Heap for String {
    fn heap(&self) -> usize {
        self.len()
    }
}

impl Heap for Vec<i32> {
    fn heap(&self) -> usize {
        size_of_val(self.as_slice())
    }
}

impl<T> Column<T> {
    fn from_option(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::One)
    }

    /// Refuses a list that has not one value for each of `prompts`.
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
    /// Refuses a number below `min`.
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
    /// The value of each of `prompts`, in order, within the budget for copies.
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
                    copies.pay(field, value.heap(), prompts)?;
                }
                Values::Same(std::iter::repeat_n(Some(value), prompts))
            }
            Self::Many(values) => Values::Each(values.into_iter()),
        })
    }
}

/// The values of a column, prompt by prompt.
pub(super) enum Values<T> {
    Same(RepeatN<Option<T>>),
    Each(vec::IntoIter<Option<T>>),
}

impl<T: Clone> Values<T> {
    /// That of the next prompt.
    pub(super) fn row(&mut self) -> Option<T> {
        match self {
            Self::Same(values) => values.next(),
            Self::Each(values) => values.next(),
        }
        .flatten()
    }
}

/// A value of shape `S`, or a list of them.
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
