//! The kernels with AVX2: 8 columns of a block, or 32 pixels, or 32 columns at once.
//!
//! If a row is not a multiple of 32, its last vector overlaps the one before and writes the same samples
//! again. Rows shorter than one vector use `scalar`.

#[allow(
    clippy::wildcard_imports,
    reason = "fifty names of one instruction set"
)]
use std::arch::x86_64::*;

use super::scalar::{self, DROPPED, OutSample, weights};

/// Samples in a vector.
const STEP: usize = 32;

/// The starts of the vectors of a row of `width` samples, from `first`. Requires `width - first >= STEP`.
fn starts(first: usize, width: usize) -> impl Iterator<Item = usize> {
    (first..width - STEP).step_by(STEP).chain([width - STEP])
}

/// See [`scalar::inverse_dct`].
#[target_feature(enable = "avx2")]
pub(super) fn inverse_dct(
    multipliers: &[i16; 64],
    coefficients: &[i16; 64],
    rows: [&mut [OutSample; 8]; 8],
) {
    let stored: [__m256i; 4] = std::array::from_fn(|i| load_rows(coefficients, i));
    let inputs: [__m256i; 4] =
        std::array::from_fn(|i| _mm256_mullo_epi16(stored[i], load_rows(multipliers, i)));
    let half = if has_one_row(stored) {
        let row = _mm256_castsi256_si128(inputs[0]);
        if coefficients[1..8] == [0; 7] {
            return fill(_mm_cvtsi128_si32(row) as i16, rows);
        }
        spread(_mm_slli_epi16::<2>(row))
    } else {
        let row = |i: usize| match i % 2 {
            0 => _mm256_castsi256_si128(inputs[i / 2]),
            _ => _mm256_extracti128_si256::<1>(inputs[i / 2]),
        };
        transpose(pass::<{ DROPPED[0] as i32 }>(std::array::from_fn(row)))
    };
    let columns = std::array::from_fn(|i| match i {
        0..4 => _mm256_castsi256_si128(half[i]),
        _ => _mm256_extracti128_si256::<1>(half[i - 4]),
    });
    store_block(transpose(pass::<{ DROPPED[1] as i32 }>(columns)), rows);
}

/// Whether all rows but the first are zero.
#[target_feature(enable = "avx2")]
fn has_one_row(block: [__m256i; 4]) -> bool {
    let second = _mm256_castsi128_si256(_mm256_extracti128_si256::<1>(block[0]));
    let below = _mm256_or_si256(
        _mm256_or_si256(second, block[1]),
        _mm256_or_si256(block[2], block[3]),
    );
    _mm256_testz_si256(below, below) == 1
}

/// Fills a block whose only coefficient that is not zero is the dequantized constant.
fn fill(constant: i16, rows: [&mut [OutSample; 8]; 8]) {
    // The first pass adds two fraction bits, and the second drops five bits, rounded.
    let value = (i32::from(constant.wrapping_shl(2)) + 16) >> 5;
    let sample = (value.clamp(-128, 127) + 128) as u8;
    for row in rows {
        *row = [OutSample::new(sample); 8];
    }
}

/// Writes a block. Vector `i` holds the rows `i` and `i + 4`.
#[target_feature(enable = "avx2")]
fn store_block([r04, r15, r26, r37]: [__m256i; 4], rows: [&mut [OutSample; 8]; 8]) {
    let centre = _mm256_set1_epi8(-128);
    let r0145 = _mm256_add_epi8(_mm256_packs_epi16(r04, r15), centre);
    let r2367 = _mm256_add_epi8(_mm256_packs_epi16(r26, r37), centre);
    let pairs = [
        _mm256_castsi256_si128(r0145),
        _mm256_castsi256_si128(r2367),
        _mm256_extracti128_si256::<1>(r0145),
        _mm256_extracti128_si256::<1>(r2367),
    ];
    let [a, b, c, d, e, f, g, h] = rows;
    for (pair, [upper, lower]) in pairs.into_iter().zip([[a, b], [c, d], [e, f], [g, h]]) {
        *upper = _mm_cvtsi128_si64(pair).to_le_bytes().map(OutSample::new);
        *lower = _mm_extract_epi64::<1>(pair)
            .to_le_bytes()
            .map(OutSample::new);
    }
}

/// The transpose of a matrix whose rows all equal `row`: lane `i` of vector `j` is column `4 * i + j`.
#[target_feature(enable = "avx2")]
fn spread(row: __m128i) -> [__m256i; 4] {
    let twice = _mm256_set_m128i(_mm_unpackhi_epi16(row, row), _mm_unpacklo_epi16(row, row));
    [
        _mm256_shuffle_epi32::<0x00>(twice),
        _mm256_shuffle_epi32::<0x55>(twice),
        _mm256_shuffle_epi32::<0xaa>(twice),
        _mm256_shuffle_epi32::<0xff>(twice),
    ]
}

/// One dimension of the transform, applied to each of 8 columns.
///
/// The rows of the result come in the pairs that [`transpose`] takes: (0, 2), (1, 3), (4, 6) and (5, 7).
/// A pair is one vector: the first halves of both rows, then the second halves.
#[target_feature(enable = "avx2")]
fn pass<const DROPPED: i32>(input: [__m128i; 8]) -> [[__m256i; 2]; 2] {
    use weights::{EVEN_2, EVEN_6, ODD_1, ODD_3, ODD_5, ODD_7, SUM_3, SUM_4};
    let [i0, i1, i2, i3, i4, i5, i6, i7] = input;
    let add = |a, b| _mm256_add_epi32(a, b);
    let sub = |a, b| _mm256_sub_epi32(a, b);

    let scaled = |value| _mm256_slli_epi32::<13>(_mm256_cvtepi16_epi32(value));
    let sum = scaled(_mm_add_epi16(i0, i4));
    let difference = scaled(_mm_sub_epi16(i0, i4));
    let i26 = interleave(i2, i6);
    let (outer, inner) = (weigh(i26, EVEN_2), weigh(i26, EVEN_6));
    let even = [
        add(sum, outer),
        add(difference, inner),
        sub(difference, inner),
        sub(sum, outer),
    ];

    let s34 = interleave(_mm_add_epi16(i7, i3), _mm_add_epi16(i5, i1));
    let (z3, z4) = (weigh(s34, SUM_3), weigh(s34, SUM_4));
    let (i71, i53) = (interleave(i7, i1), interleave(i5, i3));
    let odd = [
        add(weigh(i71, ODD_1), z4),
        add(weigh(i53, ODD_3), z3),
        add(weigh(i53, ODD_5), z4),
        add(weigh(i71, ODD_7), z3),
    ];

    let round = _mm256_set1_epi32(1 << (DROPPED - 1));
    let drop = |value| _mm256_srai_epi32::<DROPPED>(add(value, round));
    let upper = |i: usize| drop(add(even[i], odd[i]));
    let lower = |i: usize| drop(sub(even[7 - i], odd[7 - i]));
    let pack = |a, b| _mm256_packs_epi32(a, b);
    [
        [pack(upper(0), upper(2)), pack(upper(1), upper(3))],
        [pack(lower(4), lower(6)), pack(lower(5), lower(7))],
    ]
}

/// Transposes the result of [`pass`]: lane `i` of vector `j` is column `4 * i + j`.
#[target_feature(enable = "avx2")]
fn transpose([[p02, p13], [p46, p57]]: [[__m256i; 2]; 2]) -> [__m256i; 4] {
    let p01 = _mm256_unpacklo_epi16(p02, p13);
    let p23 = _mm256_unpackhi_epi16(p02, p13);
    let p45 = _mm256_unpacklo_epi16(p46, p57);
    let p67 = _mm256_unpackhi_epi16(p46, p57);
    let (a, b) = (
        _mm256_unpacklo_epi32(p01, p23),
        _mm256_unpackhi_epi32(p01, p23),
    );
    let (c, d) = (
        _mm256_unpacklo_epi32(p45, p67),
        _mm256_unpackhi_epi32(p45, p67),
    );
    [
        _mm256_unpacklo_epi64(a, c),
        _mm256_unpackhi_epi64(a, c),
        _mm256_unpacklo_epi64(b, d),
        _mm256_unpackhi_epi64(b, d),
    ]
}

/// The values of `a` and `b`, alternating.
#[target_feature(enable = "avx2")]
fn interleave(a: __m128i, b: __m128i) -> __m256i {
    _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b))
}

/// The weighted sum of each pair.
#[target_feature(enable = "avx2")]
fn weigh(pairs: __m256i, [a, b]: [i16; 2]) -> __m256i {
    let both = i32::from(b) << 16 | i32::from(a as u16);
    _mm256_madd_epi16(pairs, _mm256_set1_epi32(both))
}

/// See [`scalar::ycc_to_rgb`].
#[target_feature(enable = "avx2")]
pub(super) fn ycc_to_rgb(planes: [&[u8]; 3], rgb: &mut [OutSample]) {
    let width = planes[0].len();
    if width < STEP {
        return scalar::ycc_to_rgb(planes, rgb);
    }
    for start in starts(0, width) {
        let [y, cb, cr] = planes.map(|plane| load(plane, start));
        let zero = _mm256_setzero_si256();
        let low = ycc_to_rgb_16(
            _mm256_unpacklo_epi8(y, zero),
            _mm256_unpacklo_epi8(cb, zero),
            _mm256_unpacklo_epi8(cr, zero),
        );
        let high = ycc_to_rgb_16(
            _mm256_unpackhi_epi8(y, zero),
            _mm256_unpackhi_epi8(cb, zero),
            _mm256_unpackhi_epi8(cr, zero),
        );
        let planes = std::array::from_fn(|i| _mm256_packus_epi16(low[i], high[i]));
        store_interleaved(planes, &mut rgb[start * 3..]);
    }
}

/// Converts 16 pixels to 16-bit channels that are not clamped.
///
/// A whole number is subtracted from each factor so that it fits 16 bits. That multiple of the chroma
/// value is added separately. Products are computed twice as large and then halved with rounding.
#[target_feature(enable = "avx2")]
fn ycc_to_rgb_16(y: __m256i, cb: __m256i, cr: __m256i) -> [__m256i; 3] {
    let add = |a, b| _mm256_add_epi16(a, b);
    let centre = _mm256_set1_epi16(128);
    let (cb, cr) = (_mm256_sub_epi16(cb, centre), _mm256_sub_epi16(cr, centre));
    let share = |chroma, factor: i16| {
        let twice = _mm256_mulhi_epi16(add(chroma, chroma), _mm256_set1_epi16(factor));
        _mm256_srai_epi16::<1>(add(twice, _mm256_set1_epi16(1)))
    };
    let red = add(cr, share(cr, (91_881 - 65_536) as i16));
    let blue = add(add(cb, cb), share(cb, (116_130 - 2 * 65_536) as i16));

    let half = _mm256_set1_epi32(1 << 15);
    let green = |pairs| {
        let sum = weigh(pairs, [-22_554, (65_536 - 46_802) as i16]);
        _mm256_srai_epi32::<16>(_mm256_add_epi32(sum, half))
    };
    let low = green(_mm256_unpacklo_epi16(cb, cr));
    let high = green(_mm256_unpackhi_epi16(cb, cr));
    let green = _mm256_sub_epi16(_mm256_packs_epi32(low, high), cr);
    [add(y, red), add(y, green), add(y, blue)]
}

/// For each byte of three half vectors of interleaved pixels, its index in the plane of a channel. -1 if
/// it belongs to another channel.
const PLACES: [[[i8; 32]; 3]; 3] = {
    let mut places = [[[-1; 32]; 3]; 3];
    let mut byte = 0;
    while byte < 48 {
        let place = &mut places[byte / 16][byte % 3];
        place[byte % 16] = (byte / 3) as i8;
        place[byte % 16 + 16] = (byte / 3) as i8;
        byte += 1;
    }
    places
};

/// Writes 32 pixels. Each half of the planes holds 16.
#[target_feature(enable = "avx2")]
fn store_interleaved(planes: [__m256i; 3], out: &mut [OutSample]) {
    let [a, b, c] = PLACES.map(|places| {
        let [r, g, b] = std::array::from_fn(|channel| {
            // SAFETY: the array has the 32 bytes that are read.
            let places = unsafe { _mm256_loadu_si256(places[channel].as_ptr().cast()) };
            _mm256_shuffle_epi8(planes[channel], places)
        });
        _mm256_or_si256(_mm256_or_si256(r, g), b)
    });
    let [first, second, third, ..] = out.as_chunks_mut().0 else {
        unreachable!("each pixel gets three bytes");
    };
    store(_mm256_permute2x128_si256::<0x20>(a, b), first);
    store(_mm256_permute2x128_si256::<0x30>(c, a), second);
    store(_mm256_permute2x128_si256::<0x31>(b, c), third);
}

/// See [`scalar::double_columns`].
#[target_feature(enable = "avx2")]
pub(super) fn double_columns(row: &[u8], out: &mut [OutSample]) {
    let width = row.len();
    if width < STEP + 2 {
        return scalar::double_columns(row, out);
    }
    // Only the outer column of each of these two pairs is final. The vectors overwrite the inner one.
    scalar::double_columns(&row[..2], &mut out[..4]);
    scalar::double_columns(&row[width - 2..], &mut out[width * 2 - 4..]);
    let three_and_one = _mm256_set1_epi16(0x0103);
    for start in starts(1, width - 1) {
        let [before, here, after] = [start - 1, start, start + 1].map(|at| load(row, at));
        let left = _mm256_set1_epi16(1);
        let right = _mm256_set1_epi16(2);
        let side = |pairs, bias| {
            let sum = _mm256_maddubs_epi16(pairs, three_and_one);
            _mm256_srli_epi16::<2>(_mm256_add_epi16(sum, bias))
        };
        let low = alternate(
            side(_mm256_unpacklo_epi8(here, before), left),
            side(_mm256_unpacklo_epi8(here, after), right),
        );
        let high = alternate(
            side(_mm256_unpackhi_epi8(here, before), left),
            side(_mm256_unpackhi_epi8(here, after), right),
        );
        store_doubled(low, high, &mut out[start * 2..]);
    }
}

/// See [`scalar::double_columns_between`].
#[target_feature(enable = "avx2")]
pub(super) fn double_columns_between(near: &[u8], far: &[u8], out: &mut [OutSample]) {
    let width = near.len();
    if width < STEP + 2 {
        return scalar::double_columns_between(near, far, out);
    }
    // As in `double_columns`.
    scalar::double_columns_between(&near[..2], &far[..2], &mut out[..4]);
    scalar::double_columns_between(
        &near[width - 2..],
        &far[width - 2..],
        &mut out[width * 2 - 4..],
    );
    let three_and_one = _mm256_set1_epi16(0x0103);
    for start in starts(1, width - 1) {
        let [before, here, after] = [start - 1, start, start + 1].map(|at| {
            let (near, far) = (load(near, at), load(far, at));
            [
                _mm256_maddubs_epi16(_mm256_unpacklo_epi8(near, far), three_and_one),
                _mm256_maddubs_epi16(_mm256_unpackhi_epi8(near, far), three_and_one),
            ]
        });
        let [low, high] = [0, 1].map(|half| {
            let thrice = _mm256_add_epi16(here[half], _mm256_add_epi16(here[half], here[half]));
            let side = |side, bias| {
                let sum = _mm256_add_epi16(_mm256_add_epi16(thrice, side), _mm256_set1_epi16(bias));
                _mm256_srli_epi16::<4>(sum)
            };
            alternate(side(before[half], 8), side(after[half], 7))
        });
        store_doubled(low, high, &mut out[start * 2..]);
    }
}

/// Packs 16-bit values below 256 to bytes, alternating `left` and `right`.
#[target_feature(enable = "avx2")]
fn alternate(left: __m256i, right: __m256i) -> __m256i {
    _mm256_or_si256(left, _mm256_slli_epi16::<8>(right))
}

/// Stores vectors made from unpacked halves in the order of the columns.
#[target_feature(enable = "avx2")]
fn store_doubled(low: __m256i, high: __m256i, out: &mut [OutSample]) {
    let [first, second, ..] = out.as_chunks_mut().0 else {
        unreachable!("each column gets two samples");
    };
    store(_mm256_permute2x128_si256::<0x20>(low, high), first);
    store(_mm256_permute2x128_si256::<0x31>(low, high), second);
}

/// The vector at `start`.
#[target_feature(enable = "avx2")]
fn load(samples: &[u8], start: usize) -> __m256i {
    let samples: &[u8; 32] = samples[start..].first_chunk().expect("a whole vector");
    // SAFETY: the reference covers the bytes that are read.
    unsafe { _mm256_loadu_si256(samples.as_ptr().cast()) }
}

/// Rows `2 * pair` and `2 * pair + 1` of a block.
#[target_feature(enable = "avx2")]
fn load_rows(block: &[i16; 64], pair: usize) -> __m256i {
    let rows: &[i16; 16] = &block.as_chunks().0[pair];
    // SAFETY: as above.
    unsafe { _mm256_loadu_si256(rows.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn store(vector: __m256i, out: &mut [OutSample; 32]) {
    // SAFETY: the reference covers the bytes that are written.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), vector) }
}
