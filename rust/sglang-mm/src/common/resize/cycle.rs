//! A cursor over rows in memory that starts again at the first row after the last one.
//!
//! Both a whole image and the ring buffer of `rows` are read through it, so a pass does not
//! need to know which of them it reads.

/// Rows in memory, from one of them on; the first follows the last, without end.
#[derive(Clone, Copy)]
pub(super) struct Cycle<'a> {
    bytes: &'a [u8],
    row_len: usize,
    /// Where the next row lies.
    at: usize,
}

impl<'a> Cycle<'a> {
    /// The rows of `bytes`, from number `first` on.
    pub(super) fn new(bytes: &'a [u8], row_len: usize, first: usize) -> Self {
        let at = first * row_len;
        assert!(bytes.len().is_multiple_of(row_len) && at < bytes.len());
        Self { bytes, row_len, at }
    }

    pub(super) fn row_len(&self) -> usize {
        self.row_len
    }

    /// The next row.
    #[inline]
    pub(super) fn next_row(&mut self) -> &'a [u8] {
        let at = self.at;
        self.at += self.row_len;
        if self.at == self.bytes.len() {
            self.at = 0;
        }
        // SAFETY: `new` asserts that whole rows fill `bytes` and that the first begins in
        // it, and each step leads to the row behind or to the first.
        unsafe { self.bytes.get_unchecked(at..at + self.row_len) }
    }
}
