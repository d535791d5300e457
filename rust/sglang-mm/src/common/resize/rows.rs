//! The rows of the resized image, one after the other, without the image.
//!
//! Rows first: source rows are resized along themselves into a ring that holds as many
//! as one target row needs, and target rows are combined from the ring. Columns first:
//! source rows are combined, and the one row that comes out is resized. An axis that
//! keeps its length has no pass, and with neither pass source rows are handed on as
//! they lie.
//!
//! Invariant: rows asked for in order cost each source row one horizontal pass; rows
//! asked for in any order are the same.

use std::ops::Range;

use super::{
    OutOfMemory, Resample,
    axis::{Axis, Taps},
    scalar::{self, CHANNELS},
    zeroed,
};
use crate::common::Size;

/// The passes from one image to rows of another size.
pub(super) struct Plan<'a> {
    src: &'a [u8],
    from: Size,
    to: Size,
    x: Option<Axis>,
    y: Option<Axis>,
    vertical_first: bool,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        src: &'a [u8],
        from: Size,
        to: Size,
        resample: Resample,
    ) -> Result<Self, OutOfMemory> {
        let axis = |from, to| {
            let changes = from != to;
            changes.then(|| resample.axis(from, to)).transpose()
        };
        Ok(Self {
            src,
            from,
            to,
            x: axis(from.width, to.width)?,
            y: axis(from.height, to.height)?,
            vertical_first: resample.vertical_first(from, to),
        })
    }

    /// A producer of rows with buffers of its own.
    pub(super) fn rows(&self) -> Result<Rows<'_>, OutOfMemory> {
        let row_len = self.to.width * CHANNELS;
        let (combined, ring) = match (&self.x, &self.y) {
            (Some(_), Some(_)) if self.vertical_first => (self.from.width * CHANNELS, 0),
            (Some(_), Some(y)) => (0, y.most_taps()),
            _ => (0, 0),
        };
        Ok(Rows {
            plan: self,
            ring: Ring::new(ring, row_len)?,
            combined: zeroed(combined)?,
            row: zeroed(row_len)?,
        })
    }

    fn source_row(&self, y: usize) -> &'a [u8] {
        let row_len = self.from.width * CHANNELS;
        &self.src[y * row_len..][..row_len]
    }

    /// The source rows that `taps` names.
    fn source(&self, taps: Taps<'_>) -> Cycle<'a> {
        let row_len = self.from.width * CHANNELS;
        Cycle::new(self.src, row_len, taps.start)
    }
}

/// Hands out rows of the resized image.
pub(super) struct Rows<'a> {
    plan: &'a Plan<'a>,
    ring: Ring,
    combined: Vec<u8>,
    row: Vec<u8>,
}

impl Rows<'_> {
    /// The RGB bytes of row `y`.
    pub(super) fn get(&mut self, y: usize) -> &[u8] {
        let plan = self.plan;
        match (&plan.x, &plan.y) {
            (None, None) => return plan.source_row(y),
            (Some(x), None) => scalar::horizontal(plan.source_row(y), x, &mut self.row),
            (None, Some(axis)) => {
                let taps = axis.taps(y);
                let rows = plan.source(taps);
                scalar::vertical(rows, taps, axis.precision(), &mut self.row);
            }
            (Some(x), Some(axis)) if plan.vertical_first => {
                let taps = axis.taps(y);
                let rows = plan.source(taps);
                scalar::vertical(rows, taps, axis.precision(), &mut self.combined);
                scalar::horizontal(&self.combined, x, &mut self.row);
            }
            (Some(x), Some(axis)) => {
                let taps = axis.taps(y);
                let rows = self.ring.rows(taps.range(), |y, row| {
                    scalar::horizontal(plan.source_row(y), x, row);
                });
                scalar::vertical(rows, taps, axis.precision(), &mut self.row);
            }
        }
        &self.row
    }
}

/// The latest rows of an image that is made row by row.
struct Ring {
    slots: Vec<u8>,
    row_len: usize,
    count: usize,
    /// Which rows of the image the slots hold; row `y` is in slot `y % count`.
    ready: Range<usize>,
}

impl Ring {
    fn new(count: usize, row_len: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            slots: zeroed(count.checked_mul(row_len).ok_or(OutOfMemory)?)?,
            row_len,
            count,
            ready: 0..0,
        })
    }

    /// The rows `wanted`, of which `make` writes those that are not there.
    fn rows(&mut self, wanted: Range<usize>, make: impl Fn(usize, &mut [u8])) -> Cycle<'_> {
        // Whoever goes back, or leaps ahead, starts afresh.
        let follows = self.ready.contains(&wanted.start) || self.ready.end == wanted.start;
        let from = if follows {
            self.ready.end
        } else {
            wanted.start
        };
        for y in from..wanted.end {
            let slot = y % self.count;
            make(y, &mut self.slots[slot * self.row_len..][..self.row_len]);
        }
        let end = if follows {
            wanted.end.max(self.ready.end)
        } else {
            wanted.end
        };
        self.ready = wanted.start.max(end.saturating_sub(self.count))..end;
        Cycle::new(&self.slots, self.row_len, wanted.start % self.count)
    }
}

/// Rows in memory, read from one of them on; the first follows the last.
#[derive(Clone, Copy)]
pub(super) struct Cycle<'a> {
    bytes: &'a [u8],
    row_len: usize,
    first: usize,
}

impl<'a> Cycle<'a> {
    pub(super) fn new(bytes: &'a [u8], row_len: usize, first: usize) -> Self {
        Self {
            bytes,
            row_len,
            first,
        }
    }

    /// The row that is `ahead` rows behind the first.
    pub(super) fn row(self, ahead: usize) -> &'a [u8] {
        let at = (self.first + ahead) * self.row_len;
        let at = if at < self.bytes.len() {
            at
        } else {
            at - self.bytes.len()
        };
        &self.bytes[at..][..self.row_len]
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::Ring;

    /// In order, each row is made once; out of order, every row is still the right one.
    #[test]
    fn ring() {
        #[rustfmt::skip]
        let cases = [
            ("sliding by one",  vec![(0, 3), (1, 4), (2, 5), (3, 6)], 6),
            ("standing",        vec![(0, 3), (0, 3), (0, 2), (1, 3)], 3),
            ("sliding by more", vec![(0, 2), (2, 5), (5, 8)],         8),
            ("leaping",         vec![(0, 2), (4, 6)],                 4),
            ("going back",      vec![(4, 7), (0, 3)],                 6),
            ("back by one",     vec![(4, 7), (3, 6)],                 6),
        ];
        for (name, windows, expected) in cases {
            let made = Cell::new(0);
            let mut ring = Ring::new(3, 2).ok().unwrap();
            for (start, end) in windows {
                let rows = ring.rows(start..end, |y, row| {
                    made.set(made.get() + 1);
                    row.fill(y as u8);
                });
                for y in start..end {
                    assert_eq!([y as u8; 2], rows.row(y - start), "{name}: row {y}");
                }
            }
            assert_eq!(expected, made.get(), "{name}");
        }
    }
}
