//! Memory whose size a file or a caller chose: refused with an error, not with an abort.
//!
//! Invariant: nothing here ends the process.

/// The system refused an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

/// `len` zeros, or an error where `vec!` would end the process.
///
/// The probe is freed at once: zeros straight from the system need no second write,
/// and that matters more than asking twice.
pub(crate) fn zeroed<T: Clone + Default>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    drop(empty::<T>(len)?);
    Ok(vec![T::default(); len])
}

/// No elements, and room for `len`.
pub(crate) fn empty<T>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut room = Vec::new();
    room.try_reserve_exact(len).map_err(|_| OutOfMemory)?;
    Ok(room)
}

#[cfg(test)]
mod tests {
    use super::{OutOfMemory, empty, zeroed};

    #[test]
    fn what_cannot_be_had_is_an_error() {
        assert_eq!(Ok(vec![0_u8; 3]), zeroed(3));
        assert!(empty::<u8>(3).unwrap().capacity() >= 3);
        for len in [isize::MAX as usize, usize::MAX] {
            assert_eq!(Err(OutOfMemory), zeroed::<u16>(len), "{len}");
            assert_eq!(Err(OutOfMemory), empty::<u16>(len), "{len}");
        }
    }
}
