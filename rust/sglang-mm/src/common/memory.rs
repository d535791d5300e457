//! Allocates memory whose size comes from a file or a caller. A refused allocation is an error, not
//! an abort, and buffers are not zeroed before they are filled.
//!
//! Invariant: nothing here ends the process, and no element can be read before it is written.

use std::{mem::MaybeUninit, sync::Mutex};

use super::par;

/// The system refused an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

/// `len` zeros, or an error where `vec!` would abort the process.
///
/// It first tests the size with an allocation that it frees at once. Allocating twice is cheaper
/// than writing the zeros: `vec!` gets zeroed pages directly from the system.
pub(crate) fn zeroed<T: Clone + Default>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    drop(empty::<T>(len)?);
    let mut zeros = vec![T::default(); len];
    prefer_large_pages(&mut zeros);
    Ok(zeros)
}

/// An empty vector with capacity for `len` elements.
pub(crate) fn empty<T>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut room = Vec::new();
    room.try_reserve_exact(len).map_err(|_| OutOfMemory)?;
    prefer_large_pages(room.spare_capacity_mut());
    Ok(room)
}

/// A vector of `len` elements. `write` gets the uninitialised memory and returns it initialised.
///
/// # Errors
///
/// `too_large` if memory is refused, or the error of `write`.
pub(crate) fn filled<T, E>(
    len: usize,
    too_large: E,
    write: impl FnOnce(&mut [MaybeUninit<T>]) -> Result<&mut [T], E>,
) -> Result<Vec<T>, E> {
    let Ok(mut buffer) = empty(len) else {
        return Err(too_large);
    };
    let room = &mut buffer.spare_capacity_mut()[..len];
    let expected = span(room);
    assert_eq!(expected, span(write(room)?), "other elements were written");
    // SAFETY: `write` returned initialised elements, and the assertion checks that they are these.
    unsafe { buffer.set_len(len) };
    Ok(buffer)
}

/// As [`filled`], in windows that may be written in parallel: `write(i, window)` gets memory for
/// `lens[i]` elements. The windows are consecutive in the vector.
///
/// # Errors
///
/// `too_large` if memory is refused, or the error of `write` for the lowest index.
pub(crate) fn filled_in_windows<T, R, E>(
    lens: &[usize],
    too_large: E,
    write: impl Fn(usize, &mut [MaybeUninit<T>]) -> Result<(&mut [T], R), E> + Send + Sync,
) -> Result<(Vec<T>, Vec<R>), E>
where
    T: Send,
    R: Send,
    E: Send,
{
    let len = (lens.iter()).try_fold(0_usize, |sum, len| sum.checked_add(*len));
    let Some((len, Ok(mut buffer))) = len.map(|len| (len, empty(len))) else {
        return Err(too_large);
    };
    let mut rest = &mut buffer.spare_capacity_mut()[..len];
    let mut windows = Vec::with_capacity(lens.len());
    for (index, len) in lens.iter().enumerate() {
        let (window, next) = rest.split_at_mut(*len);
        rest = next;
        // The mutex is locked once, by the one thread that processes the item.
        windows.push((index, Mutex::new(window)));
    }
    let results = par::try_map(&windows, |(index, window)| {
        let mut window = window
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let expected = span(&window);
        let (written, result) = write(*index, &mut window)?;
        assert_eq!(expected, span(written), "other elements were written");
        Ok(result)
    });
    drop(windows);
    let results = results?;
    // SAFETY: `write` returned every window initialised, and the windows have `len` elements in all.
    unsafe { buffer.set_len(len) };
    Ok((buffer, results))
}

/// The address of a slice and its length.
fn span<T>(elements: &[T]) -> (usize, usize) {
    const { assert!(size_of::<T>() > 0, "zero-sized elements share an address") };
    (elements.as_ptr().addr(), elements.len())
}

/// The smallest buffer in bytes for which large pages are requested.
const LARGE: usize = 4 << 20;

/// Asks the system to back a large buffer with large pages. An image of 12 megapixels takes 9000 small
/// pages, and the first access to a page costs more than its pixels. A refusal is ignored.
fn prefer_large_pages<T>(buffer: &mut [T]) {
    #[cfg(target_os = "linux")]
    if size_of_val(buffer) >= LARGE {
        /// The alignment of the range: a multiple of every page size of Linux, 4 to 64 KiB.
        const PAGE: usize = 1 << 16;
        let start = buffer.as_mut_ptr().cast::<u8>();
        let skipped = start.align_offset(PAGE);
        let length = (size_of_val(buffer) - skipped) / PAGE * PAGE;
        // SAFETY: the range is inside the buffer, and the advice changes no byte of it.
        unsafe { libc::madvise(start.add(skipped).cast(), length, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = buffer;
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::{LARGE, OutOfMemory, empty, filled, filled_in_windows, zeroed};

    /// Fills `room` with `value`.
    fn written(room: &mut [MaybeUninit<u8>], value: u8) -> &mut [u8] {
        room.fill(MaybeUninit::new(value));
        // SAFETY: the line above wrote every element.
        unsafe { room.assume_init_mut() }
    }

    #[test]
    fn filled_returns_what_write_wrote() {
        for len in [3, 0] {
            let sevens = filled(len, "much", |room| Ok(written(room, 7)));
            assert_eq!(Ok(vec![7; len]), sevens);
        }
        assert_eq!(Err("no"), filled::<u8, _>(3, "much", |_| Err("no")));
        assert_eq!(
            Err("much"),
            filled::<u8, _>(usize::MAX, "much", |_| unreachable!())
        );
    }

    #[test]
    fn windows_are_consecutive() {
        let tens = filled_in_windows(&[2, 0, 1, 3], "much", |index, room| {
            Ok((written(room, index as u8), index * 10))
        });
        assert_eq!(Ok((vec![0, 0, 2, 3, 3, 3], vec![0, 10, 20, 30])), tens);
        let failed = filled_in_windows(&[1; 5], 100, |index, room| match index {
            0 => Ok((written(room, 1), ())),
            _ => Err(index),
        });
        assert_eq!(Err(1), failed);
        for lens in [&[usize::MAX][..], &[usize::MAX, 1]] {
            let failed = filled_in_windows::<u8, (), _>(lens, "much", |_, _| unreachable!());
            assert_eq!(Err("much"), failed);
        }
    }

    /// If `write` returns other elements, the memory may be uninitialised.
    #[test]
    #[should_panic(expected = "other elements were written")]
    fn writing_a_part_of_the_buffer_panics() {
        let _ = filled(3, (), |room| Ok(&mut written(room, 7)[1..]));
    }

    #[test]
    #[should_panic(expected = "other elements were written")]
    fn writing_a_part_of_a_window_panics() {
        let _ = filled_in_windows(&[2, 2], (), |_, room| Ok((&mut written(room, 7)[..1], ())));
    }

    /// Whether the middle of `buffer` is marked for large pages.
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
    fn only_large_buffers_request_large_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        // Too large for memory that the allocator would reuse.
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
    fn a_refused_allocation_is_an_error() {
        assert_eq!(Ok(vec![0_u8; 3]), zeroed(3));
        assert!(empty::<u8>(3).unwrap().capacity() >= 3);
        for len in [isize::MAX as usize, usize::MAX] {
            assert_eq!(Err(OutOfMemory), zeroed::<u16>(len), "{len}");
            assert_eq!(Err(OutOfMemory), empty::<u16>(len), "{len}");
        }
    }
}
