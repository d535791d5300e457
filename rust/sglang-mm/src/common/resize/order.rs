//! Which pass Pillow runs first. Each pass rounds to 8 bits, so the order changes the result.
//!
//! Invariant: the order depends only on the two sizes, never on the pixels.

use std::{fmt, str::FromStr};

use serde::Deserialize;

use crate::common::{Size, excerpt::excerpt};

/// The rule of a Pillow version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassOrder {
    /// Pillow 13.0: vertical pass first if the image loses rows, and more than twice as many rows as
    /// columns. Examples are narrow portrait photos shrunk by half, and wide, low targets.
    #[default]
    Pillow13,
    /// Pillow 12.2 and 12.3: vertical pass first only if the height shrinks and the image is more
    /// than a hundred times as high as wide.
    Pillow12_2,
    /// Pillow up to 12.1: horizontal pass always first.
    Horizontal,
}

impl PassOrder {
    /// Every rule, the default first.
    pub const ALL: [Self; 3] = [Self::Pillow13, Self::Pillow12_2, Self::Horizontal];

    /// The name of the rule in settings and in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pillow13 => "pillow13",
            Self::Pillow12_2 => "pillow12_2",
            Self::Horizontal => "horizontal",
        }
    }

    pub(super) fn vertical_first(self, from: Size, to: Size) -> bool {
        let shrinkage = |from: usize, to: usize| from as i128 - to as i128;
        let height = shrinkage(from.height, to.height);
        let width = shrinkage(from.width, to.width);
        match self {
            Self::Pillow13 => height > 0 && height > 2 * width,
            Self::Pillow12_2 => height > 0 && from.height as u128 > 100 * from.width as u128,
            Self::Horizontal => false,
        }
    }
}

impl fmt::Display for PassOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PassOrder {
    type Err = UnknownPassOrder;

    fn from_str(name: &str) -> Result<Self, UnknownPassOrder> {
        Self::ALL
            .into_iter()
            .find(|order| order.name() == name)
            .ok_or_else(|| UnknownPassOrder(excerpt(name)))
    }
}

/// No pass order has this name. Long names are shortened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown pass order `{0}`: expected `pillow13`, `pillow12_2` or `horizontal`")]
pub struct UnknownPassOrder(pub String);

#[cfg(test)]
mod tests {
    use super::{PassOrder, Size, UnknownPassOrder};

    #[test]
    fn vertical_first_by_version() {
        let size = |(height, width)| Size { height, width };
        // Expected: whether the vertical pass comes first in (Pillow 13, Pillow 12.2).
        #[rustfmt::skip]
        let cases = [
            ("landscape, same aspect",        (1080, 1920), (540, 960),  (false, false)),
            ("portrait, exactly twice as high",  (200, 100),   (100, 50),   (false, false)),
            ("portrait, over twice as high",   (201, 100),   (100, 50),   (true,  false)),
            ("lower and wider",               (480, 640),   (476, 644),  (true,  false)),
            ("higher and wider",              (10, 10),     (20, 20),    (false, false)),
            ("higher, much narrower",         (10, 100),    (11, 1),     (false, false)),
            ("a hundred times as high",       (1000, 10),   (500, 5),    (true,  false)),
            ("over a hundred times as high",  (1001, 10),   (500, 5),    (true,  true)),
            ("over a hundred times, growing",  (1001, 10),   (1002, 9),   (false, false)),
            ("over a hundred times, widened",  (1001, 10),   (1000, 500), (true,  true)),
        ];
        for (name, from, to, (pillow13, pillow12_2)) in cases {
            let order = |rule: PassOrder| rule.vertical_first(size(from), size(to));
            assert_eq!(pillow13, order(PassOrder::Pillow13), "{name}, 13");
            assert_eq!(pillow12_2, order(PassOrder::Pillow12_2), "{name}, 12.2");
            assert!(!order(PassOrder::Horizontal), "{name}, horizontal");
        }
    }

    #[test]
    fn names_parse_back() {
        for order in PassOrder::ALL {
            assert_eq!(Ok(order), order.to_string().parse());
        }
        assert_eq!(
            Err(UnknownPassOrder("Pillow13".to_owned())),
            "Pillow13".parse::<PassOrder>()
        );
    }
}
