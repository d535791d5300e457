//! The size of an image, as a type with named fields so that height and width cannot be swapped.
//!
//! Invariant: both sides are in pixels.

use std::fmt;

/// Height and width in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    /// Number of rows.
    pub height: usize,
    /// Number of pixels per row.
    pub width: usize,
}

impl Size {
    /// Bytes of an RGB image of this size. `None` if no allocation can hold them.
    #[must_use]
    pub fn rgb_len(self) -> Option<usize> {
        let len = self.height.checked_mul(self.width)?.checked_mul(3)?;
        isize::try_from(len).is_ok().then_some(len)
    }

    /// Whether the image has no pixels.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.height == 0 || self.width == 0
    }
}

/// Names both sides: `480 high, 640 wide`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} high, {} wide", self.height, self.width)
    }
}
