//! A cursor over rows in memory that starts again at the first row after the last one.
//!
//! Both a whole image and the ring buffer of `rows` are read through it, so a pass does not
//! need to know which of them it reads.

/// Rows in memory, starting at one of them. After the last row comes the first again.
#[derive(Clone, Copy)]
pub(super) struct Cycle<'a> {
    bytes: &'a [u8],
    row_len: usize,
    /// The offset of the next row.
    at: usize,
}

impl<'a> Cycle<'a> {
    /// The rows of `bytes`, starting at row `first`.
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
        // SAFETY: `new` asserts that `bytes` consists of whole rows and that the first row starts
        // inside. Each step leads to the next row or to the first.
        unsafe { self.bytes.get_unchecked(at..at + self.row_len) }
    }
}
