//! A read position in a byte slice that never indexes past the end.
//!
//! `take` returns all of the bytes asked for or none. `read` returns what is left, as a file does.

/// A position in borrowed bytes. It may be past the end: then every read is empty.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn at(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Advances by `count` bytes, possibly past the end.
    pub(super) fn skip(&mut self, count: usize) {
        self.position = self.position.saturating_add(count);
    }

    /// Reads up to `count` bytes.
    pub(super) fn read(&mut self, count: usize) -> &'a [u8] {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let taken = &rest[..count.min(rest.len())];
        self.position += taken.len();
        taken
    }

    /// Reads exactly `count` bytes. If fewer are left it returns `None` and does not move.
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.position.checked_add(count)?;
        let taken = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N).map(|taken| {
            taken
                .try_into()
                .expect("`take` returns the count asked for")
        })
    }
}

/// The 16-bit little-endian number at `at`, if `bytes` is long enough.
pub(super) fn u16_le(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// The 32-bit little-endian number at `at`.
pub(super) fn u32_le(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The 16-bit big-endian number at `at`.
pub(super) fn u16_be(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// The 32-bit big-endian number at `at`.
pub(super) fn u32_be(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stop_at_the_end() {
        let mut cursor = Cursor::at(&[1, 2, 3], 0);
        assert_eq!(cursor.take(2), Some(&[1, 2][..]));
        assert_eq!(cursor.take(2), None, "take returns all or nothing");
        assert_eq!(cursor.position(), 2, "a failed take does not move");
        assert_eq!(cursor.read(9), &[3], "read returns what is left");
        cursor.skip(usize::MAX);
        assert_eq!(cursor.read(1), &[] as &[u8], "reads past the end are empty");
        assert_eq!(cursor.array::<1>(), None);
    }

    #[test]
    fn numbers_at_the_end_need_all_their_bytes() {
        let bytes = [1, 2, 3, 4];
        assert_eq!(u16_le(&bytes, 2), Some(0x0403));
        assert_eq!(u16_be(&bytes, 2), Some(0x0304));
        assert_eq!(u32_le(&bytes, 0), Some(0x0403_0201));
        assert_eq!(u32_be(&bytes, 0), Some(0x0102_0304));
        assert_eq!(u16_be(&bytes, 3), None);
        assert_eq!(u32_le(&bytes, 1), None);
    }
}
