//! Which pass Pillow runs first. Each pass rounds to 8 bits, so the order shows.
//!
//! Invariant: the order depends on the two sizes alone, never on the pixels.

use std::{fmt, str::FromStr};

use serde::Deserialize;

use crate::common::{Size, excerpt::excerpt};

/// A rule of some Pillow version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassOrder {
    /// Pillow 13.0: columns first when that saves more than twice as much height as
    /// width. Portrait photos shrunk by half and wide, low targets are such cases.
    #[default]
    Pillow13,
    /// Pillow 12.2 and 12.3: columns first only for shrinking images over a hundred
    /// times as high as wide.
    Pillow12_2,
    /// Pillow up to 12.1: rows first, always.
    Horizontal,
}

impl PassOrder {
    /// Every rule, the default first.
    pub const ALL: [Self; 3] = [Self::Pillow13, Self::Pillow12_2, Self::Horizontal];

    /// The name in settings and in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pillow13 => "pillow13",
            Self::Pillow12_2 => "pillow12_2",
            Self::Horizontal => "horizontal",
        }
    }

    pub(super) fn vertical_first(self, from: Size, to: Size) -> bool {
        let saved = |from: usize, to: usize| from as i128 - to as i128;
        let height = saved(from.height, to.height);
        let width = saved(from.width, to.width);
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

/// No pass order has this name, of which a long one is cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown pass order `{0}`: expected `pillow13`, `pillow12_2` or `horizontal`")]
pub struct UnknownPassOrder(pub String);

#[cfg(test)]
mod tests {
    use super::{PassOrder, Size, UnknownPassOrder};

    #[test]
    fn rules() {
        let size = |(height, width)| Size { height, width };
        // Columns first under (Pillow 13, Pillow 12.2)?
        #[rustfmt::skip]
        let cases = [
            ("landscape, same aspect",        (1080, 1920), (540, 960),  (false, false)),
            ("portrait just twice as high",   (200, 100),   (100, 50),   (false, false)),
            ("portrait over twice as high",   (201, 100),   (100, 50),   (true,  false)),
            ("lower and wider",               (480, 640),   (476, 644),  (true,  false)),
            ("higher and wider",              (10, 10),     (20, 20),    (false, false)),
            ("higher, much narrower",         (10, 100),    (11, 1),     (false, false)),
            ("a hundred times as high",       (1000, 10),   (500, 5),    (true,  false)),
            ("over a hundred times as high",  (1001, 10),   (500, 5),    (true,  true)),
            ("the same, growing",             (1001, 10),   (1002, 9),   (false, false)),
            ("the same, as wide as wanted",   (1001, 10),   (1000, 500), (true,  true)),
        ];
        for (name, from, to, (pillow13, pillow12_2)) in cases {
            let order = |rule: PassOrder| rule.vertical_first(size(from), size(to));
            assert_eq!(pillow13, order(PassOrder::Pillow13), "{name}, 13");
            assert_eq!(pillow12_2, order(PassOrder::Pillow12_2), "{name}, 12.2");
            assert!(!order(PassOrder::Horizontal), "{name}, horizontal");
        }
    }

    #[test]
    fn names() {
        for order in PassOrder::ALL {
            assert_eq!(Ok(order), order.to_string().parse());
        }
        assert_eq!(
            Err(UnknownPassOrder("Pillow13".to_owned())),
            "Pillow13".parse::<PassOrder>()
        );
    }
}
