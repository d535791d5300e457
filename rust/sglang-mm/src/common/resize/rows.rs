//! Produces the rows of the resized image one by one, without storing the image.
//!
//! Horizontal pass first: source rows are resized into a ring buffer that holds as many rows
//! as one target row needs, and target rows are combined from it. Vertical pass first: source
//! rows are combined, and the resulting row is resized. An axis that keeps its length has no
//! pass. Without any pass source rows are returned as they are.
//!
//! Invariant: the order of requests does not change a row. If rows are requested in order, each
//! source row is resized horizontally only once.

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

/// The passes from an image to rows of another size.
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

    /// A producer of up to `max_rows` rows at once, with its own buffers.
    pub(super) fn rows(&self, max_rows: usize) -> Result<Rows<'_>, OutOfMemory> {
        let row_len = self.to.width * CHANNELS;
        let output_rows = if self.x.is_none() && self.y.is_none() {
            0
        } else {
            max_rows.min(self.to.height)
        };
        let (combined_len, ring_rows) = match (&self.x, &self.y) {
            (Some(_), Some(_)) if self.vertical_first => (self.from.width * CHANNELS, 0),
            (Some(_), Some(y)) => (0, y.axis.max_taps()),
            _ => (0, 0),
        };
        Ok(Rows {
            plan: self,
            ring: Ring::new(ring_rows, row_len)?,
            combined: zeroed(combined_len)?,
            output: zeroed(output_rows.checked_mul(row_len).ok_or(OutOfMemory)?)?,
        })
    }

    /// Computes row `y` into `out`.
    fn compute(&self, y: usize, ring: &mut Ring, combined: &mut [u8], out: &mut [u8]) {
        match (&self.x, &self.y) {
            (None, None) => out.copy_from_slice(self.source_row(y)),
            (Some(x), None) => x.run(self.source_row(y), out),
            (None, Some(pass)) => pass.run(y, self.source_from(pass.start(y)), out),
            (Some(x), Some(pass)) if self.vertical_first => {
                pass.run(y, self.source_from(pass.start(y)), combined);
                x.run(combined, out);
            }
            (Some(x), Some(pass)) => {
                let needed = pass.axis.taps(y).range();
                let rows = ring.rows(needed, |y, row| x.run(self.source_row(y), row));
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

    /// The source rows from `y`.
    fn source_from(&self, y: usize) -> Cycle<'a> {
        Cycle::new(self.src, self.from.width * CHANNELS, y)
    }
}

/// Produces rows of the resized image.
pub(super) struct Rows<'a> {
    plan: &'a Plan<'a>,
    ring: Ring,
    /// Result of the vertical pass, if that comes first.
    combined: Vec<u8>,
    output: Vec<u8>,
}

impl Rows<'_> {
    /// The RGB bytes of `rows`, row by row.
    pub(super) fn get(&mut self, rows: Range<usize>) -> &[u8] {
        let plan = self.plan;
        let row_len = plan.to.width * CHANNELS;
        if plan.x.is_none() && plan.y.is_none() {
            return plan.source(rows);
        }
        let output = &mut self.output[..rows.len() * row_len];
        for (y, out) in rows.zip(output.chunks_exact_mut(row_len)) {
            plan.compute(y, &mut self.ring, &mut self.combined, out);
        }
        output
    }
}

/// A ring buffer of the latest rows of an image that is computed row by row.
struct Ring {
    slots: Vec<u8>,
    row_len: usize,
    count: usize,
    /// The image rows that the slots hold. Row `y` is in slot `y % count`.
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

    /// The rows `wanted`. Calls `compute` for those that the buffer does not hold.
    fn rows(&mut self, wanted: Range<usize>, compute: impl Fn(usize, &mut [u8])) -> Cycle<'_> {
        // A request for an earlier row, or one after a gap, discards the buffer.
        let continues = self.ready.contains(&wanted.start) || self.ready.end == wanted.start;
        let from = if continues {
            self.ready.end
        } else {
            wanted.start
        };
        for y in from..wanted.end {
            let slot = y % self.count;
            compute(y, &mut self.slots[slot * self.row_len..][..self.row_len]);
        }
        let end = if continues {
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

    /// In order, each row is computed once. Out of order, every row is still correct.
    #[test]
    fn ring_recomputes_only_missing_rows() {
        #[rustfmt::skip]
        let cases = [
            ("sliding by one",  vec![(0, 3), (1, 4), (2, 5), (3, 6)], 6),
            ("repeated",        vec![(0, 3), (0, 3), (0, 2), (1, 3)], 3),
            ("sliding by more", vec![(0, 2), (2, 5), (5, 8)],         8),
            ("after a gap",     vec![(0, 2), (4, 6)],                 4),
            ("going back",      vec![(4, 7), (0, 3)],                 6),
            ("back by one",     vec![(4, 7), (3, 6)],                 6),
        ];
        for (name, windows, expected) in cases {
            let computed = Cell::new(0);
            let mut ring = Ring::new(3, 2).ok().unwrap();
            for (start, end) in windows {
                let mut rows = ring.rows(start..end, |y, row| {
                    computed.set(computed.get() + 1);
                    row.fill(y as u8);
                });
                for y in start..end {
                    assert_eq!([y as u8; 2], rows.next_row(), "{name}: row {y}");
                }
            }
            assert_eq!(expected, computed.get(), "{name}");
        }
    }
}
