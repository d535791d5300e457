//! Memory whose size a file or a caller chose: refused with an error, not with an abort,
//! and not written before it is filled.
//!
//! Invariant: nothing here ends the process, and nobody sees an element before it is
//! written.

use std::{mem::MaybeUninit, sync::Mutex};

use super::par;

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

/// `len` elements, which `write` gets as room and gives back written.
///
/// # Errors
///
/// `too_large` for want of memory, or what `write` returned.
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
    // SAFETY: a slice of elements came back, and it was this room.
    unsafe { buffer.set_len(len) };
    Ok(buffer)
}

/// As [`filled`], for many who write side by side: `write(i, room)` gets room for
/// `lens[i]` elements, which follow one another in the buffer.
///
/// # Errors
///
/// `too_large` for want of memory, or what `write` returned for the lowest index.
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
        let (window, behind) = rest.split_at_mut(*len);
        rest = behind;
        // Each is locked once, by the one thread that takes the item.
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
    // SAFETY: every window was given back as a slice of elements, and they make up `len`.
    unsafe { buffer.set_len(len) };
    Ok((buffer, results))
}

/// Where elements lie, and how many.
fn span<T>(elements: &[T]) -> (usize, usize) {
    const { assert!(size_of::<T>() > 0, "elements of no size share a place") };
    (elements.as_ptr().addr(), elements.len())
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
    use std::mem::MaybeUninit;

    use super::{LARGE, OutOfMemory, empty, filled, filled_in_windows, zeroed};

    /// Writes `value` everywhere.
    fn written(room: &mut [MaybeUninit<u8>], value: u8) -> &mut [u8] {
        room.fill(MaybeUninit::new(value));
        // SAFETY: just written.
        unsafe { room.assume_init_mut() }
    }

    #[test]
    fn room_becomes_elements_when_it_is_written() {
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
    fn windows_follow_one_another() {
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

    /// Whoever returns other elements than those of the room has not written the room.
    #[test]
    #[should_panic(expected = "other elements were written")]
    fn a_part_is_not_the_room() {
        let _ = filled(3, (), |room| Ok(&mut written(room, 7)[1..]));
    }

    #[test]
    #[should_panic(expected = "other elements were written")]
    fn a_part_is_not_the_window() {
        let _ = filled_in_windows(&[2, 2], (), |_, room| Ok((&mut written(room, 7)[..1], ())));
    }

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
