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
    let mut zeros = vec![T::default(); len];
    prefer_large_pages(&mut zeros);
    Ok(zeros)
}

/// No elements, and room for `len`.
pub(crate) fn empty<T>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut room = Vec::new();
    room.try_reserve_exact(len).map_err(|_| OutOfMemory)?;
    prefer_large_pages(room.spare_capacity_mut());
    Ok(room)
}

/// Bytes from which on large pages are asked for.
const LARGE: usize = 4 << 20;

/// Asks the system to back a large buffer with large pages: a picture of 12 megapixels is 9000 small
/// ones, and the first touch of each costs more than the pixels in it. A wish, so refusals are ignored.
fn prefer_large_pages<T>(buffer: &mut [T]) {
    #[cfg(target_os = "linux")]
    if size_of_val(buffer) >= LARGE {
        /// The smallest unit of what the system may be asked.
        const PAGE: usize = 1 << 16;
        let start = buffer.as_mut_ptr().cast::<u8>();
        let skipped = start.align_offset(PAGE);
        let length = (size_of_val(buffer) - skipped) / PAGE * PAGE;
        // SAFETY: the range lies in the buffer, and the advice changes no byte of it.
        unsafe { libc::madvise(start.add(skipped).cast(), length, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = buffer;
}

#[cfg(test)]
mod tests {
    use super::{LARGE, OutOfMemory, empty, zeroed};

    /// Whether the system noted our wish about the middle of `buffer`.
    #[cfg(target_os = "linux")]
    fn has_large_pages(buffer: &[u8]) -> bool {
        let address = buffer.as_ptr() as usize + buffer.len() / 2;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| {
            let range = line
                .split_once(' ')
                .and_then(|(range, _)| range.split_once('-'));
            let range =
                range.map(|(start, end)| [start, end].map(|at| usize::from_str_radix(at, 16)));
            !matches!(range, Some([Ok(start), Ok(end)]) if (start..end).contains(&address))
        });
        let flags = lines
            .find_map(|line| line.strip_prefix("VmFlags:"))
            .unwrap();
        flags.split_whitespace().any(|flag| flag == "hg")
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn only_large_buffers_ask_for_large_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        // Larger than what the allocator hands out again.
        let length = 10 * LARGE;
        let zeros = zeroed::<u8>(length).unwrap();
        assert!(has_large_pages(&zeros));
        assert!(zeros.iter().all(|&byte| byte == 0));
        let mut room = empty::<u8>(length).unwrap();
        room.resize(length, 7);
        assert!(has_large_pages(&room));
        assert!(room.iter().all(|&byte| byte == 7));
        assert!(!has_large_pages(&zeroed(LARGE / 2).unwrap()));
    }

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
