//! The passes with AVX2: 16-bit multiply-add of pairs of taps into 32-bit sums.
//!
//! Invariant: the sums are those of `scalar` modulo 2^32, so the bytes are the same.

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
    packed::{LOW_BITS, Packed},
    rows::Cycle,
    scalar::{self, CHANNELS, half},
};

/// Bytes of a vector.
const VECTOR: usize = 32;

/// See [`scalar::horizontal`].
#[target_feature(enable = "avx2")]
pub(super) fn horizontal(src: &[u8], axis: &Axis, packed: &Packed, out: &mut [u8]) {
    // A loop of known length spares a branch per group; longer windows do not notice.
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

/// Weights in `PARTS` parts, windows of `GROUPS` groups; 0 groups: as many as there are.
#[target_feature(enable = "avx2")]
fn horizontal_of<const PARTS: usize, const GROUPS: usize>(
    src: &[u8],
    axis: &Axis,
    packed: &Packed,
    out: &mut [u8],
) {
    let groups = if GROUPS == 0 { packed.groups } else { GROUPS };
    // The last group is read as 16 bytes, of which 12 count. Windows move right, so
    // those that would be read beyond the row stand at its end.
    let reach = (groups - 1) * 4 * CHANNELS + 16;
    let inside = axis.starting_before(src.len().saturating_sub(reach) / CHANNELS + 1);
    let inside = if src.len() < reach { 0 } else { inside / 4 * 4 };

    let precision = axis.precision();
    let half = _mm256_set1_epi32(half(precision));
    let precision = _mm256_set1_epi32(precision as i32);
    let (fast, rest) = out.split_at_mut(inside * CHANNELS);
    for (block, bytes) in fast.chunks_exact_mut(4 * CHANNELS).enumerate() {
        let sums = |pixel: usize| {
            let x = block * 4 + pixel;
            let at = axis.start(x) * CHANNELS;
            debug_assert!(at + reach <= src.len());
            // SAFETY: `reach` bytes from `at` on lie in `src`, as `x < inside`.
            unsafe { window::<PARTS>(src.as_ptr().add(at), packed.window(x), groups) }
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
        // SAFETY: `bytes` has 12 bytes: 8 and then 4.
        unsafe {
            let to = bytes.as_mut_ptr();
            _mm_storel_epi64(to.cast(), pixels);
            to.add(8)
                .cast::<i32>()
                .write_unaligned(_mm_extract_epi32::<2>(pixels));
        }
    }
    scalar::horizontal(src, axis, inside, rest);
}

/// The sums of one target pixel, each in two halves: `r r g g | b b 0 0`.
///
/// # Safety
///
/// `groups * 12 + 4` bytes must be readable at `src`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn window<const PARTS: usize>(src: *const u8, weights: &[i16], groups: usize) -> __m256i {
    debug_assert_eq!(weights.len(), groups * PARTS * 4);
    // r0 r1 r2 r3 g0 g1 g2 g3 | b0 b1 b2 b3, as 16-bit numbers
    let spread = _mm256_setr_epi8(
        0, -1, 3, -1, 6, -1, 9, -1, 1, -1, 4, -1, 7, -1, 10, -1, //
        2, -1, 5, -1, 8, -1, 11, -1, -1, -1, -1, -1, -1, -1, -1, -1,
    );
    let mut sums = [_mm256_setzero_si256(); PARTS];
    for group in 0..groups {
        // SAFETY: the group's 12 bytes and 4 more are readable.
        let bytes = unsafe { _mm_loadu_si128(src.add(group * 4 * CHANNELS).cast()) };
        let pixels = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), spread);
        for (part, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a window has `PARTS` times 4 weights per group.
            let weights = unsafe {
                let at = weights.as_ptr().add((group * PARTS + part) * 4);
                _mm256_set1_epi64x(at.cast::<i64>().read_unaligned())
            };
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pixels, weights));
        }
    }
    join(sums)
}

/// One sum from those of the parts, the high one first.
#[target_feature(enable = "avx2")]
#[inline]
fn join<const PARTS: usize>(parts: [__m256i; PARTS]) -> __m256i {
    parts
        .into_iter()
        .reduce(|high, low| _mm256_add_epi32(_mm256_slli_epi32::<LOW_BITS>(high), low))
        .expect("at least one part")
}

/// See [`scalar::vertical`]; `y` is the target row that `taps` belong to.
#[target_feature(enable = "avx2")]
pub(super) fn vertical(
    rows: &Cycle<'_>,
    taps: Taps<'_>,
    packed: &Packed,
    y: usize,
    precision: u32,
    out: &mut [u8],
) {
    let Some(last) = out.len().checked_sub(VECTOR) else {
        return scalar::vertical(rows, taps, precision, out);
    };
    let weights = packed.window(y);
    // The last block ends with the row and may write bytes of its neighbour again.
    for at in (0..last).step_by(VECTOR).chain([last]) {
        let out = &mut out[at..][..VECTOR];
        match packed.parts {
            1 => column::<1>(rows.clone(), at, weights, precision, out),
            _ => column::<2>(rows.clone(), at, weights, precision, out),
        }
    }
}

/// Sums a vector's width of columns.
#[target_feature(enable = "avx2")]
#[inline]
fn column<const PARTS: usize>(
    mut rows: Cycle<'_>,
    at: usize,
    weights: &[i16],
    precision: u32,
    out: &mut [u8],
) {
    let zero = _mm256_setzero_si256();
    let mut sums = [[zero; PARTS]; 4];
    for pair in weights.chunks_exact(PARTS * 2) {
        let mut load = || {
            let bytes = &rows.next().unwrap_or_default()[at..][..VECTOR];
            // SAFETY: the slice has as many bytes as a vector.
            unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
        };
        let (a, b) = (load(), load());
        let (low, high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
        // a0 b0 a1 b1 …, as 16-bit numbers
        let pixels = [
            _mm256_unpacklo_epi8(low, zero),
            _mm256_unpackhi_epi8(low, zero),
            _mm256_unpacklo_epi8(high, zero),
            _mm256_unpackhi_epi8(high, zero),
        ];
        for (part, weights) in pair.chunks_exact(2).enumerate() {
            let both = u32::from(weights[0] as u16) | u32::from(weights[1] as u16) << 16;
            let weights = _mm256_set1_epi32(both as i32);
            for (sums, &pixels) in sums.iter_mut().zip(&pixels) {
                sums[part] = _mm256_add_epi32(sums[part], _mm256_madd_epi16(pixels, weights));
            }
        }
    }
    let half = _mm256_set1_epi32(half(precision));
    let precision = _mm256_set1_epi32(precision as i32);
    let [a, b, c, d] =
        sums.map(|sums| _mm256_srav_epi32(_mm256_add_epi32(join(sums), half), precision));
    // Within each half of a vector packing undoes unpacking.
    let bytes = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    // SAFETY: `out` has as many bytes as a vector.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), bytes) };
}
