//! The five row filters of PNG, undone in place.
//!
//! A *unit* is the distance in bytes between a byte and its left neighbour: one pixel, or one byte if
//! pixels are smaller. It is a constant in the loops, so that the compiler can unroll them.

#[cfg(target_arch = "x86_64")]
mod avx2;

#[cfg(target_arch = "x86_64")]
use crate::common::isa::Isa;

/// Undoes the filters `kinds` of consecutive RGB rows, given the row above them. `None` for an unknown
/// filter.
pub(super) fn undo_rgb(kinds: &[u8], above: &[u8], rows: &mut [u8]) -> Option<()> {
    #[cfg(target_arch = "x86_64")]
    if let Ok(kinds) = kinds.try_into()
        && avx2::suits(kinds, above.len())
        && Isa::Avx2.is_supported()
    {
        // SAFETY: the condition above checks that the CPU has AVX2.
        unsafe { avx2::undo(kinds, above, rows) };
        return Some(());
    }
    let mut above = above;
    for (kind, row) in kinds.iter().zip(rows.chunks_exact_mut(above.len())) {
        undo(*kind, 3, above, row)?;
        above = row;
    }
    Some(())
}

/// Undoes the filter `kind` of `row`, given the row above it. `None` for an unknown filter.
pub(super) fn undo(kind: u8, unit: usize, above: &[u8], row: &mut [u8]) -> Option<()> {
    match unit {
        1 => undo_units::<1>(kind, above, row),
        2 => undo_units::<2>(kind, above, row),
        3 => undo_units::<3>(kind, above, row),
        4 => undo_units::<4>(kind, above, row),
        _ => unreachable!("a pixel has at most four bytes"),
    }
}

fn undo_units<const N: usize>(kind: u8, above: &[u8], row: &mut [u8]) -> Option<()> {
    match kind {
        0 => {}
        1 => undo_left::<N>(row),
        2 => undo_above(above, row),
        3 => undo_average::<N>(above, row),
        4 => undo_paeth::<N>(above, row),
        _ => return None,
    }
    Some(())
}

fn undo_left<const N: usize>(row: &mut [u8]) {
    let mut left = [0; N];
    for pixel in row.as_chunks_mut::<N>().0 {
        for (byte, left) in pixel.iter_mut().zip(&mut left) {
            *byte = byte.wrapping_add(*left);
            *left = *byte;
        }
    }
}

fn undo_above(above: &[u8], row: &mut [u8]) {
    for (byte, above) in row.iter_mut().zip(above) {
        *byte = byte.wrapping_add(*above);
    }
}

fn undo_average<const N: usize>(above: &[u8], row: &mut [u8]) {
    let mut left = [0; N];
    let pixels = row.as_chunks_mut::<N>().0.iter_mut();
    for (pixel, above) in pixels.zip(above.as_chunks::<N>().0) {
        for i in 0..N {
            let average = u16::midpoint(left[i].into(), above[i].into());
            pixel[i] = pixel[i].wrapping_add(average as u8);
        }
        left = *pixel;
    }
}

fn undo_paeth<const N: usize>(above: &[u8], row: &mut [u8]) {
    let mut left = [0; N];
    let mut corner = [0; N];
    let pixels = row.as_chunks_mut::<N>().0.iter_mut();
    for (pixel, above) in pixels.zip(above.as_chunks::<N>().0) {
        for i in 0..N {
            pixel[i] = pixel[i].wrapping_add(paeth(left[i], above[i], corner[i]));
        }
        left = *pixel;
        corner = *above;
    }
}

/// The neighbour nearest to `left + above - corner`. Ties go to `left`, then to `above`.
fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let [a, b, c] = [left, above, corner].map(i16::from);
    let (by_left, by_above, by_corner) = ((b - c).abs(), (a - c).abs(), ((b - c) + (a - c)).abs());
    let upper = if by_above <= by_corner { above } else { corner };
    if by_left <= by_above && by_left <= by_corner {
        left
    } else {
        upper
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition in the PNG standard, byte by byte.
    fn definition(kind: u8, unit: usize, above: &[u8], row: &[u8]) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        for (i, &byte) in row.iter().enumerate() {
            let (a, c) = match i.checked_sub(unit) {
                Some(left) => (i32::from(out[left]), i32::from(above[left])),
                None => (0, 0),
            };
            let b = i32::from(above[i]);
            let p = a + b - c;
            let (pa, pb, pc) = ((p - a).abs(), (p - b).abs(), (p - c).abs());
            let guess = match kind {
                0 => 0,
                1 => a,
                2 => b,
                3 => i32::midpoint(a, b),
                _ if pa <= pb && pa <= pc => a,
                _ if pb <= pc => b,
                _ => c,
            };
            out.push(byte.wrapping_add(guess as u8));
        }
        out
    }

    fn random(mut seed: u32) -> impl FnMut() -> u8 {
        move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        }
    }

    #[test]
    fn filters_match_their_definition() {
        let mut random = random(1);
        for unit in 1..=4 {
            for pixels in 0..40 {
                let row: Vec<u8> = (0..pixels * unit).map(|_| random()).collect();
                let above: Vec<u8> = (0..pixels * unit).map(|_| random()).collect();
                for kind in 0..=4 {
                    let mut undone = row.clone();
                    undo(kind, unit, &above, &mut undone).unwrap();
                    let expected = definition(kind, unit, &above, &row);
                    assert_eq!(
                        undone, expected,
                        "filter {kind}, {unit} bytes, {pixels} pixels"
                    );
                }
            }
        }
        assert_eq!(undo(5, 1, &[0], &mut [0]), None, "filter 5 does not exist");
    }

    /// Every combination of filters, at widths on both sides of the switch to AVX2.
    #[test]
    fn rows_undone_together_match_rows_undone_alone() {
        let mut random = random(2);
        for width in (1..60).chain([333]) {
            let above: Vec<u8> = (0..width * 3).map(|_| random()).collect();
            for case in 0..5_usize.pow(4) {
                let kinds = [1, 5, 25, 125].map(|place| (case / place % 5) as u8);
                // Half of the cases have close values, so that ties occur.
                let mask = if case % 2 == 0 { 0xff } else { 0x03 };
                let stored: Vec<u8> = (0..width * 12).map(|_| random() & mask).collect();
                let mut expected = stored.clone();
                let mut upper = above.as_slice();
                for (kind, row) in kinds.iter().zip(expected.chunks_exact_mut(width * 3)) {
                    undo(*kind, 3, upper, row).unwrap();
                    upper = row;
                }
                let mut undone = stored;
                undo_rgb(&kinds, &above, &mut undone).unwrap();
                assert!(undone == expected, "{kinds:?} of {width} pixels");
            }
        }
        let unknown = undo_rgb(&[4, 4, 5, 4], &[0; 300], &mut [0; 1200]);
        assert_eq!(unknown, None, "filter 5 does not exist");
    }
}
