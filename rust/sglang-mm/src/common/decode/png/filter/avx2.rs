//! Undoes the filters of four RGB rows at once, with AVX2.
//!
//! A pixel needs its left neighbour, so one row is one chain of dependent steps. Four rows are four
//! such chains in parallel, if each row lags behind the row above it so that its inputs are ready.

#[allow(
    clippy::wildcard_imports,
    reason = "dozens of names of one instruction set"
)]
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows that are unfiltered together.
pub(super) const ROWS: usize = 4;

/// Pixels by which each row lags behind the row above it. With two, the pixels that a row needs from
/// above were written at least two steps ago, so no step waits for the one before.
const LAG: usize = 2;

/// The first step in which all rows are far enough from their start. In step `t` row `k` is at its
/// pixel `t - LAG * k`.
const FIRST: usize = 3 + LAG * (ROWS - 1);

/// The narrowest rows in pixels for which this is faster.
const MIN_WIDTH: usize = 4 * FIRST;

/// Whether rows of `length` bytes with the filters `kinds` can be undone here, and faster.
pub(super) fn suits(kinds: [u8; ROWS], length: usize) -> bool {
    let known = kinds.iter().all(|kind| matches!(kind, 0 | 1 | 2 | 4));
    let slow = kinds.map(|kind| usize::from(kind == 4));
    known && slow.iter().sum::<usize>() >= 2 && length >= MIN_WIDTH * 3
}

/// Undoes the filters `kinds` of `rows`, given the row above them. [`suits`] must have returned true.
///
/// # Panics
/// Unless there are four rows of whole pixels, each as long as `above`.
#[target_feature(enable = "avx2")]
pub(super) fn undo(kinds: [u8; ROWS], above: &[u8], rows: &mut [u8]) {
    let width = above.len() / 3;
    assert!(above.len() == width * 3 && rows.len() == above.len() * ROWS && width >= MIN_WIDTH);
    let last = width - 1;
    span_all(kinds, above, rows, |row| 0..FIRST - LAG * row);
    steps(kinds, above, rows, FIRST..last);
    span_all(kinds, above, rows, |row| last - LAG * row..width);
}

/// The steps in which no row is near its start or end. `range` holds the pixels of the first row.
#[target_feature(enable = "avx2")]
fn steps(kinds: [u8; ROWS], above: &[u8], rows: &mut [u8], range: Range<usize>) {
    let per_row = |value: fn(u8) -> i16| {
        let values: [i16; 16] = std::array::from_fn(|lane| value(kinds[lane / 4]));
        // SAFETY: the array has the 32 bytes that are read.
        unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
    };
    // Combined by OR with the distance of the left neighbour. -1 makes the left neighbour the nearest,
    // 0 keeps its distance, and `i16::MAX` makes it the farthest.
    let distance = per_row(|kind| match kind {
        1 => -1,
        4 => 0,
        _ => i16::MAX,
    });
    let has_above = per_row(|kind| if kind == 0 { 0 } else { -1 });
    let has_corner = per_row(|kind| if kind == 4 { -1 } else { 0 });

    let stride = above.len() - LAG * 3;
    let mut before = gather(rows, stride, range.start - 2);
    let mut left = gather(rows, stride, range.start - 1);
    let mut corner = pixels_above(
        above,
        range.start - 1,
        gather(rows, stride, range.start - 3),
    );
    let mut stored = gather(rows, stride, range.start);
    for step in range.clone() {
        // Read before this step writes its pixels, because each write covers one byte too many.
        let next = gather(rows, stride, step + 1);
        let neighbour = pixels_above(above, step, before);
        let b = _mm256_and_si256(neighbour, has_above);
        let c = _mm256_blendv_epi8(b, corner, has_corner);
        let pixels = _mm256_add_epi8(stored, predict(left, b, c, distance));
        scatter(pixels, rows, stride, step);
        (before, left, corner, stored) = (left, pixels, neighbour, next);
    }
    // Restore the bytes that the last step overwrote.
    for row in 0..ROWS {
        let lanes = unpack(stored);
        rows[range.end * 3 + row * stride] = lanes[row] as u8;
    }
}

/// The neighbour nearest to `left + above - corner`. Ties go to `left`, then to `above`. `distance` is
/// combined by bitwise OR with the distance of `left`.
#[target_feature(enable = "avx2")]
fn predict(left: __m256i, above: __m256i, corner: __m256i, distance: __m256i) -> __m256i {
    let rise = _mm256_sub_epi16(above, corner);
    let run = _mm256_sub_epi16(left, corner);
    let by_left = _mm256_or_si256(_mm256_abs_epi16(rise), distance);
    let by_above = _mm256_abs_epi16(run);
    let by_corner = _mm256_abs_epi16(_mm256_add_epi16(rise, run));
    let not_above = _mm256_cmpgt_epi16(by_above, by_corner);
    let not_left = _mm256_cmpgt_epi16(by_left, _mm256_min_epi16(by_above, by_corner));
    let upper = _mm256_blendv_epi8(above, corner, not_above);
    _mm256_blendv_epi8(left, upper, not_left)
}

/// The pixels above those of `step`: for the first row from the row `above`, for the other rows from the
/// pixels written [`LAG`] steps `before`.
#[target_feature(enable = "avx2")]
fn pixels_above(above: &[u8], step: usize, before: __m256i) -> __m256i {
    let first = _mm_cvtepu8_epi16(_mm_cvtsi32_si128(read(above, step * 3)));
    let others = _mm256_permute4x64_epi64::<0b10_01_00_00>(before);
    _mm256_blend_epi32::<0b11>(others, _mm256_castsi128_si256(first))
}

/// The pixels of `step`, each in four lanes. The last of these is ignored.
#[target_feature(enable = "avx2")]
fn gather(rows: &[u8], stride: usize, step: usize) -> __m256i {
    let [a, b, c, d] = std::array::from_fn(|row| read(rows, step * 3 + row * stride));
    _mm256_cvtepu8_epi16(_mm_setr_epi32(a, b, c, d))
}

/// Writes the pixels of `step`, and one more byte after each.
#[target_feature(enable = "avx2")]
fn scatter(pixels: __m256i, rows: &mut [u8], stride: usize, step: usize) {
    for (row, pixel) in unpack(pixels).into_iter().enumerate() {
        let at = step * 3 + row * stride;
        debug_assert!(at + 4 <= rows.len());
        // SAFETY: in bounds as in `read`, and never called for the last pixel of a row.
        unsafe {
            rows.as_mut_ptr()
                .add(at)
                .cast::<u32>()
                .write_unaligned(pixel);
        }
    }
}

/// The pixels as bytes. The ignored lane is the most significant byte.
#[target_feature(enable = "avx2")]
fn unpack(pixels: __m256i) -> [u32; ROWS] {
    let bytes = _mm256_packus_epi16(pixels, pixels);
    let first = _mm256_extract_epi64::<0>(bytes) as u64;
    let second = _mm256_extract_epi64::<2>(bytes) as u64;
    [
        first as u32,
        (first >> 32) as u32,
        second as u32,
        (second >> 32) as u32,
    ]
}

/// Four bytes: the pixel, and one byte after it.
fn read(bytes: &[u8], at: usize) -> i32 {
    debug_assert!(at + 4 <= bytes.len());
    // SAFETY: `undo` checked the lengths, and no step reads the last pixel of the last row. `FIRST` keeps
    // all rows after their start. The range ends before the end of the first row, where the other rows
    // are at least `LAG` pixels before their ends.
    unsafe { bytes.as_ptr().add(at).cast::<i32>().read_unaligned() }
}

/// Undoes the pixels in `range` of each row, one by one.
fn span_all(
    kinds: [u8; ROWS],
    above: &[u8],
    rows: &mut [u8],
    range: impl Fn(usize) -> Range<usize>,
) {
    let mut above = above;
    for (index, row) in rows.chunks_exact_mut(above.len()).enumerate() {
        for at in range(index).start * 3..range(index).end * 3 {
            let before = |row: &[u8]| at.checked_sub(3).map_or(0, |left| row[left]);
            let guess = match kinds[index] {
                0 => 0,
                1 => before(row),
                2 => above[at],
                _ => super::paeth(before(row), above[at], before(above)),
            };
            row[at] = row[at].wrapping_add(guess);
        }
        above = row;
    }
}
