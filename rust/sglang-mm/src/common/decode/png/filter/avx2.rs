//! Four rows of RGB at once, with AVX2.
//!
//! A pixel needs its left neighbour, so one row alone is a chain of waits. Four rows are four chains,
//! if each lags behind the one above it: then the pixels that it needs are there.

#[allow(
    clippy::wildcard_imports,
    reason = "dozens of names of one instruction set"
)]
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows that are undone together.
pub(super) const ROWS: usize = 4;

/// Pixels by which each row lags behind the one above it. With two, what a row needs from above was
/// not written in the very last step, so that no step waits for it.
const LAG: usize = 2;

/// The step in which all rows are far enough from their start; in step `t` row `k` is at its pixel
/// `t - LAG * k`.
const FIRST: usize = 3 + LAG * (ROWS - 1);

/// Narrowest rows that are worth it.
const NARROWEST: usize = 4 * FIRST;

/// Whether rows of these filters and so many bytes can be undone here, and gain by it.
pub(super) fn suits(kinds: [u8; ROWS], length: usize) -> bool {
    let known = kinds.iter().all(|kind| matches!(kind, 0 | 1 | 2 | 4));
    let slow = kinds.map(|kind| usize::from(kind == 4));
    known && slow.iter().sum::<usize>() >= 2 && length >= NARROWEST * 3
}

/// Undo the filters `kinds`, which [`suits`] approved, of `rows`, given the row above them.
///
/// # Panics
/// If there are not four rows of whole pixels, all as long as `above`.
#[target_feature(enable = "avx2")]
pub(super) fn undo(kinds: [u8; ROWS], above: &[u8], rows: &mut [u8]) {
    let width = above.len() / 3;
    assert!(above.len() == width * 3 && rows.len() == above.len() * ROWS && width >= NARROWEST);
    let last = width - 1;
    span_all(kinds, above, rows, |row| 0..FIRST - LAG * row);
    steps(kinds, above, rows, FIRST..last);
    span_all(kinds, above, rows, |row| last - LAG * row..width);
}

/// The steps in which each row is inside: `range` is that of the pixels of the first row.
#[target_feature(enable = "avx2")]
fn steps(kinds: [u8; ROWS], above: &[u8], rows: &mut [u8], range: Range<usize>) {
    let per_row = |value: fn(u8) -> i16| {
        let values: [i16; 16] = std::array::from_fn(|lane| value(kinds[lane / 4]));
        // SAFETY: the array is as long as what is read.
        unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
    };
    // The distance of the left neighbour: below all others, above all others, or what it is.
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
    let mut corner = beneath(
        above,
        range.start - 1,
        gather(rows, stride, range.start - 3),
    );
    let mut stored = gather(rows, stride, range.start);
    for step in range.clone() {
        // Read before this step's pixels are written, for they come with a byte too many.
        let next = gather(rows, stride, step + 1);
        let neighbour = beneath(above, step, before);
        let b = _mm256_and_si256(neighbour, has_above);
        let c = _mm256_blendv_epi8(b, corner, has_corner);
        let pixels = _mm256_add_epi8(stored, predict(left, b, c, distance));
        scatter(pixels, rows, stride, step);
        (before, left, corner, stored) = (left, pixels, neighbour, next);
    }
    // The byte too many of the last step.
    for row in 0..ROWS {
        let lanes = unpack(stored);
        rows[range.end * 3 + row * stride] = lanes[row] as u8;
    }
}

/// The neighbour nearest to `left + above - corner`; ties go to the left, then to the one above.
/// `distance` has bits that are set in the distance of the left one.
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

/// The pixels above those of `step`: of the first row from the row `above`, of the others from what was
/// written [`LAG`] steps `before`.
#[target_feature(enable = "avx2")]
fn beneath(above: &[u8], step: usize, before: __m256i) -> __m256i {
    let first = _mm_cvtepu8_epi16(_mm_cvtsi32_si128(read(above, step * 3)));
    let others = _mm256_permute4x64_epi64::<0b10_01_00_00>(before);
    _mm256_blend_epi32::<0b11>(others, _mm256_castsi128_si256(first))
}

/// The pixels of `step`, each in four lanes of which the last does not count.
#[target_feature(enable = "avx2")]
fn gather(rows: &[u8], stride: usize, step: usize) -> __m256i {
    let [a, b, c, d] = std::array::from_fn(|row| read(rows, step * 3 + row * stride));
    _mm256_cvtepu8_epi16(_mm_setr_epi32(a, b, c, d))
}

/// Writes the pixels of `step`, and a byte behind each.
#[target_feature(enable = "avx2")]
fn scatter(pixels: __m256i, rows: &mut [u8], stride: usize, step: usize) {
    for (row, pixel) in unpack(pixels).into_iter().enumerate() {
        let at = step * 3 + row * stride;
        debug_assert!(at + 4 <= rows.len());
        // SAFETY: as in `read`, for pixels before the last of a row.
        unsafe {
            rows.as_mut_ptr()
                .add(at)
                .cast::<u32>()
                .write_unaligned(pixel);
        }
    }
}

/// The pixels as bytes, with the lane that does not count on top.
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

/// Four bytes, of which the last is behind the pixel.
fn read(bytes: &[u8], at: usize) -> i32 {
    debug_assert!(at + 4 <= bytes.len());
    // SAFETY: `undo` checked the lengths, and no step is asked for pixels that are the last of the last
    // row: `FIRST` keeps all rows behind their start and the range ends before the first row's end,
    // where the others are `LAG` pixels and more before theirs.
    unsafe { bytes.as_ptr().add(at).cast::<i32>().read_unaligned() }
}

/// Undo the pixels that `range` gives for each row, one by one.
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
