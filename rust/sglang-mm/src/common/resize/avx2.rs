//! The passes with AVX2: 16-bit multiply-add of pairs of taps into 32-bit sums.
//!
//! Invariant: the sums equal those of `scalar` modulo 2^32, so the bytes are the same.

use std::arch::x86_64::{
    __m256i, _mm_extract_epi32, _mm_loadu_si128, _mm_setr_epi8, _mm_shuffle_epi8, _mm_storel_epi64,
    _mm256_add_epi32, _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_hadd_epi32,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_packs_epi32, _mm256_packus_epi16,
    _mm256_permute4x64_epi64, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi32, _mm256_srav_epi32,
    _mm256_storeu_si256, _mm256_unpackhi_epi8, _mm256_unpacklo_epi8,
};

use super::{
    axis::{Axis, Taps},
    cycle::Cycle,
    packed::{LOW_BITS, Packed},
    scalar::{self, CHANNELS, half},
};

/// Bytes per vector.
const VECTOR: usize = 32;

/// See [`scalar::horizontal`].
#[target_feature(enable = "avx2")]
pub(super) fn horizontal(src: &[u8], axis: &Axis, packed: &Packed, out: &mut [u8]) {
    // A constant number of groups saves a branch per group. Longer windows do not gain from it.
    match (packed.parts, packed.groups) {
        (1, 1) => horizontal_of::<1, 1>(src, axis, packed, out),
        (1, 2) => horizontal_of::<1, 2>(src, axis, packed, out),
        (1, 3) => horizontal_of::<1, 3>(src, axis, packed, out),
        (1, 4) => horizontal_of::<1, 4>(src, axis, packed, out),
        (1, _) => horizontal_of::<1, 0>(src, axis, packed, out),
        (_, 1) => horizontal_of::<2, 1>(src, axis, packed, out),
        (_, 2) => horizontal_of::<2, 2>(src, axis, packed, out),
        (_, 3) => horizontal_of::<2, 3>(src, axis, packed, out),
        (_, 4) => horizontal_of::<2, 4>(src, axis, packed, out),
        (_, _) => horizontal_of::<2, 0>(src, axis, packed, out),
    }
}

/// The horizontal pass for weights of `PARTS` parts and windows of `GROUPS` groups. 0 groups means a
/// number known only at run time.
///
/// Over 40 lines: the loop body shares a dozen constants and vectors.
#[target_feature(enable = "avx2")]
fn horizontal_of<const PARTS: usize, const GROUPS: usize>(
    src: &[u8],
    axis: &Axis,
    packed: &Packed,
    out: &mut [u8],
) {
    let groups = if GROUPS == 0 { packed.groups } else { GROUPS };
    let stride = groups * PARTS * 4;
    assert_eq!(
        packed.stride, stride,
        "the windows have another number of groups or parts"
    );
    // The last group is read as 16 bytes, of which 12 are used. Window starts never decrease, so
    // only the last windows could read past the end of the row.
    let reach = (groups - 1) * 4 * CHANNELS + 16;
    let fits = |start: usize| start * CHANNELS + reach <= src.len();
    let inside = axis.windows().partition_point(|window| fits(window.start));

    let precision = axis.precision();
    let half = _mm256_set1_epi32(half(precision));
    let precision = _mm256_set1_epi32(precision as i32);
    let windows = axis.windows()[..inside].chunks_exact(4);
    let weights = packed.weights().chunks_exact(stride * 4);
    let (fast, rest) = out.split_at_mut(windows.len() * 4 * CHANNELS);
    let blocks = fast.chunks_exact_mut(4 * CHANNELS);
    for ((bytes, windows), weights) in blocks.zip(windows).zip(weights) {
        let sums = |pixel: usize| {
            let at = windows[pixel].start * CHANNELS;
            debug_assert!(at + reach <= src.len());
            // SAFETY: the window fits, so `src` has `reach` bytes from `at`, and a window has
            // `stride` weights.
            unsafe {
                let weights = weights.as_ptr().add(pixel * stride);
                window::<PARTS>(src.as_ptr().add(at), weights, groups)
            }
        };
        let [a, b, c, d] = [sums(0), sums(1), sums(2), sums(3)];
        let to_bytes = |sums| _mm256_srav_epi32(_mm256_add_epi32(sums, half), precision);
        let (ab, cd) = (
            to_bytes(_mm256_hadd_epi32(a, b)),
            to_bytes(_mm256_hadd_epi32(c, d)),
        );
        let words = _mm256_packs_epi32(ab, cd);
        // r0 g0 r1 g1 r2 g2 r3 g3 twice | b0 0 b1 0 b2 0 b3 0 twice
        let halves = _mm256_packus_epi16(words, words);
        let joined = _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b10_00>(halves));
        let order = _mm_setr_epi8(0, 1, 8, 2, 3, 10, 4, 5, 12, 6, 7, 14, -1, -1, -1, -1);
        let pixels = _mm_shuffle_epi8(joined, order);
        // SAFETY: `bytes` has 12 bytes. This writes 8 and then 4.
        unsafe {
            let to = bytes.as_mut_ptr();
            _mm_storel_epi64(to.cast(), pixels);
            to.add(8)
                .cast::<i32>()
                .write_unaligned(_mm_extract_epi32::<2>(pixels));
        }
    }
    scalar::horizontal(src, axis, inside / 4 * 4, rest);
}

/// The sums of one target pixel, each as two halves: `r r g g | b b 0 0`.
///
/// # Safety
///
/// `groups * 12 + 4` bytes must be readable at `src`, and `groups * PARTS * 4` numbers at `weights`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn window<const PARTS: usize>(
    src: *const u8,
    weights: *const i16,
    groups: usize,
) -> __m256i {
    // r0 r1 r2 r3 g0 g1 g2 g3 | b0 b1 b2 b3, as 16-bit numbers
    let spread = _mm256_setr_epi8(
        0, -1, 3, -1, 6, -1, 9, -1, 1, -1, 4, -1, 7, -1, 10, -1, //
        2, -1, 5, -1, 8, -1, 11, -1, -1, -1, -1, -1, -1, -1, -1, -1,
    );
    let mut sums = [_mm256_setzero_si256(); PARTS];
    for group in 0..groups {
        // SAFETY: the 12 bytes of the group and 4 more are readable.
        let bytes = unsafe { _mm_loadu_si128(src.add(group * 4 * CHANNELS).cast()) };
        let pixels = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), spread);
        for (part, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a window has `PARTS * 4` weights per group.
            let weights = unsafe {
                let at = weights.add((group * PARTS + part) * 4);
                _mm256_set1_epi64x(at.cast::<i64>().read_unaligned())
            };
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pixels, weights));
        }
    }
    join(sums)
}

/// Joins the sums of the parts, the high part first.
#[target_feature(enable = "avx2")]
#[inline]
fn join<const PARTS: usize>(parts: [__m256i; PARTS]) -> __m256i {
    parts
        .into_iter()
        .reduce(|high, low| _mm256_add_epi32(_mm256_slli_epi32::<LOW_BITS>(high), low))
        .expect("at least one part")
}

/// See [`scalar::vertical`]. `y` is the target row of `taps`.
#[target_feature(enable = "avx2")]
pub(super) fn vertical(
    rows: Cycle<'_>,
    taps: Taps<'_>,
    packed: &Packed,
    y: usize,
    precision: u32,
    out: &mut [u8],
) {
    let (parts, weights) = (packed.parts, packed.window(y));
    let mut at = 0;
    // Two vectors at a time share the row lookups. With weights of two parts, the sums of one vector
    // already fill the registers.
    while parts == 1 && at + 2 * VECTOR <= out.len() {
        columns::<1, 2>(rows, at, weights, precision, &mut out[at..]);
        at += 2 * VECTOR;
    }
    while at < out.len() {
        // The last vector ends with the row and may overlap the vector before it.
        let Some(last) = out.len().checked_sub(VECTOR) else {
            return scalar::vertical(rows, taps, precision, out);
        };
        let start = at.min(last);
        match parts {
            1 => columns::<1, 1>(rows, start, weights, precision, &mut out[start..]),
            _ => columns::<2, 1>(rows, start, weights, precision, &mut out[start..]),
        }
        at += VECTOR;
    }
}

/// Computes `N` vectors of columns, starting at column `at`, into the start of `out`.
///
/// Over 40 lines: the sums stay in registers from the first row to the store.
#[target_feature(enable = "avx2")]
#[inline]
fn columns<const PARTS: usize, const N: usize>(
    mut rows: Cycle<'_>,
    at: usize,
    weights: &[i16],
    precision: u32,
    out: &mut [u8],
) {
    assert!(at + N * VECTOR <= rows.row_len() && N * VECTOR <= out.len());
    let zero = _mm256_setzero_si256();
    let mut sums = [[[zero; PARTS]; 4]; N];
    for pair in weights.chunks_exact(PARTS * 2) {
        let (a, b) = (rows.next_row(), rows.next_row());
        let mut both = [zero; PARTS];
        for (both, weights) in both.iter_mut().zip(pair.chunks_exact(2)) {
            let pair = u32::from(weights[0] as u16) | u32::from(weights[1] as u16) << 16;
            *both = _mm256_set1_epi32(pair as i32);
        }
        for (vector, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the assertion at the top bounds the offset.
            let load = |row: &[u8]| unsafe {
                _mm256_loadu_si256(row.as_ptr().add(at + vector * VECTOR).cast())
            };
            let (a, b) = (load(a), load(b));
            let (low, high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
            // a0 b0 a1 b1 …, as 16-bit numbers
            let pixels = [
                _mm256_unpacklo_epi8(low, zero),
                _mm256_unpackhi_epi8(low, zero),
                _mm256_unpacklo_epi8(high, zero),
                _mm256_unpackhi_epi8(high, zero),
            ];
            for (sums, pixels) in sums.iter_mut().zip(pixels) {
                for (sum, weights) in sums.iter_mut().zip(both) {
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pixels, weights));
                }
            }
        }
    }
    let half = _mm256_set1_epi32(half(precision));
    let precision = _mm256_set1_epi32(precision as i32);
    let to_bytes = |sums| _mm256_srav_epi32(_mm256_add_epi32(join(sums), half), precision);
    for (vector, sums) in sums.into_iter().enumerate() {
        let [a, b, c, d] = sums.map(to_bytes);
        // Packing reverses the unpacking within each half of a vector.
        let bytes = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        // SAFETY: the assertion at the top bounds the offset.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(vector * VECTOR).cast(), bytes) };
    }
}
