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
    cycle::Cycle,
    method::Resample,
    pass::{Horizontal, Vertical},
    scalar::CHANNELS,
};
use crate::common::{
    Size,
    isa::Isa,
    memory::{OutOfMemory, zeroed},
};

/// The passes from one image to rows of another size.
pub(super) struct Plan<'a> {
    src: &'a [u8],
    from: Size,
    to: Size,
    x: Option<Horizontal>,
    y: Option<Vertical>,
    vertical_first: bool,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        isa: Isa,
        src: &'a [u8],
        from: Size,
        to: Size,
        resample: Resample,
    ) -> Result<Self, OutOfMemory> {
        let x = || Horizontal::new(isa, resample.axis(from.width, to.width)?);
        let y = || Vertical::new(isa, resample.axis(from.height, to.height)?);
        Ok(Self {
            src,
            from,
            to,
            x: (from.width != to.width).then(x).transpose()?,
            y: (from.height != to.height).then(y).transpose()?,
            vertical_first: resample.vertical_first(from, to),
        })
    }

    /// A producer of up to `most` rows at once, with buffers of its own.
    pub(super) fn rows(&self, most: usize) -> Result<Rows<'_>, OutOfMemory> {
        let row_len = self.to.width * CHANNELS;
        let most = most.min(self.to.height);
        let made = if self.x.is_none() && self.y.is_none() {
            0
        } else {
            most
        };
        let (combined, ring) = match (&self.x, &self.y) {
            (Some(_), Some(_)) if self.vertical_first => (self.from.width * CHANNELS, 0),
            (Some(_), Some(y)) => (0, y.axis.most_taps()),
            _ => (0, 0),
        };
        Ok(Rows {
            plan: self,
            ring: Ring::new(ring, row_len)?,
            combined: zeroed(combined)?,
            made: zeroed(made.checked_mul(row_len).ok_or(OutOfMemory)?)?,
        })
    }

    /// Row `y`, of which at least one pass is due.
    fn make(&self, y: usize, ring: &mut Ring, combined: &mut [u8], out: &mut [u8]) {
        match (&self.x, &self.y) {
            (None, None) => out.copy_from_slice(self.source_row(y)),
            (Some(x), None) => x.run(self.source_row(y), out),
            (None, Some(pass)) => pass.run(y, self.source_from(pass.start(y)), out),
            (Some(x), Some(pass)) if self.vertical_first => {
                pass.run(y, self.source_from(pass.start(y)), combined);
                x.run(combined, out);
            }
            (Some(x), Some(pass)) => {
                let seen = pass.axis.taps(y).range();
                let rows = ring.rows(seen, |y, row| x.run(self.source_row(y), row));
                pass.run(y, rows, out);
            }
        }
    }

    fn source(&self, rows: Range<usize>) -> &'a [u8] {
        let row_len = self.from.width * CHANNELS;
        &self.src[rows.start * row_len..rows.end * row_len]
    }

    fn source_row(&self, y: usize) -> &'a [u8] {
        self.source(y..y + 1)
    }

    /// Source rows from `y` on.
    fn source_from(&self, y: usize) -> Cycle<'a> {
        Cycle::new(self.src, self.from.width * CHANNELS, y)
    }
}

/// Hands out rows of the resized image.
pub(super) struct Rows<'a> {
    plan: &'a Plan<'a>,
    ring: Ring,
    combined: Vec<u8>,
    made: Vec<u8>,
}

impl Rows<'_> {
    /// The RGB bytes of `rows`, one behind the other.
    pub(super) fn get(&mut self, rows: Range<usize>) -> &[u8] {
        let plan = self.plan;
        let row_len = plan.to.width * CHANNELS;
        if plan.x.is_none() && plan.y.is_none() {
            return plan.source(rows);
        }
        let made = &mut self.made[..rows.len() * row_len];
        for (y, out) in rows.zip(made.chunks_exact_mut(row_len)) {
            plan.make(y, &mut self.ring, &mut self.combined, out);
        }
        made
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
                let mut rows = ring.rows(start..end, |y, row| {
                    made.set(made.get() + 1);
                    row.fill(y as u8);
                });
                for y in start..end {
                    assert_eq!([y as u8; 2], rows.next_row(), "{name}: row {y}");
                }
            }
            assert_eq!(expected, made.get(), "{name}");
        }
    }
}
