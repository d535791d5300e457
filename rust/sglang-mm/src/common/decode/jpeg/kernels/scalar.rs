//! The kernels in plain Rust: the reference that every other set must match bit for bit.
//!
//! Where the code stays clear, inner loops run over adjacent values, so that the compiler can
//! vectorise them.

use std::{array::from_fn, mem::MaybeUninit};

/// An output sample, uninitialised: libjpeg and the image both provide fresh memory.
pub(super) type OutSample = MaybeUninit<u8>;

/// Fraction bits of the constants below.
const CONSTANT_BITS: u32 = 13;

/// Fraction bits of the first pass's results.
const PASS_BITS: u32 = 2;

/// The constants of the transform by Loeffler, Ligtenberg and Moschytz, with `CONSTANT_BITS` fraction
/// bits. Each is the pair of weights for a pair of inputs.
pub(super) mod weights {
    pub(in super::super) const EVEN_2: [i16; 2] = [4433 + 6270, 4433];
    pub(in super::super) const EVEN_6: [i16; 2] = [4433, 4433 - 15137];
    pub(in super::super) const SUM_3: [i16; 2] = [9633 - 16069, 9633];
    pub(in super::super) const SUM_4: [i16; 2] = [9633, 9633 - 3196];
    pub(in super::super) const ODD_7: [i16; 2] = [2446 - 7373, -7373];
    pub(in super::super) const ODD_1: [i16; 2] = [-7373, 12299 - 7373];
    pub(in super::super) const ODD_5: [i16; 2] = [16819 - 20995, -20995];
    pub(in super::super) const ODD_3: [i16; 2] = [-20995, 25172 - 20995];
}

/// Fraction bits that each of the two passes drops.
pub(super) const DROPPED: [u32; 2] = [CONSTANT_BITS - PASS_BITS, CONSTANT_BITS + PASS_BITS + 3];

/// Dequantizes the coefficients of a block and transforms them to samples, by libjpeg's accurate
/// integer transform.
///
/// Inputs wrap to 16 bits, and the results of a pass are clamped to 16 bits. That matters only in
/// damaged files. libjpeg-turbo's vector code, which Pillow runs, does the same.
pub(super) fn inverse_dct(
    multipliers: &[i16; 64],
    coefficients: &[i16; 64],
    rows: [&mut [OutSample; 8]; 8],
) {
    let inputs: Block =
        from_fn(|y| from_fn(|x| coefficients[y * 8 + x].wrapping_mul(multipliers[y * 8 + x])));
    let only_first_row = coefficients[8..]
        .iter()
        .all(|&coefficient| coefficient == 0);
    let half = if only_first_row {
        // Unlike the pass below, this does not clamp, which matters for constants out of range.
        [inputs[0].map(|constant| constant.wrapping_shl(PASS_BITS)); 8]
    } else {
        pass::<{ DROPPED[0] }>(&inputs)
    };
    let samples = transposed(&pass::<{ DROPPED[1] }>(&transposed(&half)));
    for (row, samples) in rows.into_iter().zip(samples) {
        *row = samples.map(|value| OutSample::new((value.clamp(-128, 127) + 128) as u8));
    }
}

/// Eight rows of eight columns.
type Block = [[i16; 8]; 8];

/// A row of intermediate values.
type Row = [i32; 8];

fn transposed(rows: &Block) -> Block {
    from_fn(|x| from_fn(|y| rows[y][x]))
}

/// One dimension of the transform, applied to each column.
///
/// Over 40 lines: the transform is easier to compare with its definition in one piece.
fn pass<const DROPPED: u32>([i0, i1, i2, i3, i4, i5, i6, i7]: &Block) -> Block {
    use weights::{EVEN_2, EVEN_6, ODD_1, ODD_3, ODD_5, ODD_7, SUM_3, SUM_4};
    let weigh = |a: &[i16; 8], b: &[i16; 8], weights: [i16; 2]| -> Row {
        let [for_a, for_b] = weights.map(i32::from);
        from_fn(|x| i32::from(a[x]) * for_a + i32::from(b[x]) * for_b)
    };
    let plus = |a: Row, b: Row| -> Row { from_fn(|x| a[x] + b[x]) };
    let minus = |a: Row, b: Row| -> Row { from_fn(|x| a[x] - b[x]) };
    let scaled = |value: i16| i32::from(value) << CONSTANT_BITS;
    let sum: Row = from_fn(|x| scaled(i0[x].wrapping_add(i4[x])));
    let difference: Row = from_fn(|x| scaled(i0[x].wrapping_sub(i4[x])));
    let (outer, inner) = (weigh(i2, i6, EVEN_2), weigh(i2, i6, EVEN_6));
    let even = [
        plus(sum, outer),
        plus(difference, inner),
        minus(difference, inner),
        minus(sum, outer),
    ];

    let s3 = from_fn(|x| i7[x].wrapping_add(i3[x]));
    let s4 = from_fn(|x| i5[x].wrapping_add(i1[x]));
    let (z3, z4) = (weigh(&s3, &s4, SUM_3), weigh(&s3, &s4, SUM_4));
    let odd = [
        plus(weigh(i7, i1, ODD_1), z4),
        plus(weigh(i5, i3, ODD_3), z3),
        plus(weigh(i5, i3, ODD_5), z4),
        plus(weigh(i7, i1, ODD_7), z3),
    ];

    let round = 1 << (DROPPED - 1);
    let drop = |row: Row| {
        row.map(|value| {
            let value = (value + round) >> DROPPED;
            value.clamp(i16::MIN.into(), i16::MAX.into()) as i16
        })
    };
    [
        drop(plus(even[0], odd[0])),
        drop(plus(even[1], odd[1])),
        drop(plus(even[2], odd[2])),
        drop(plus(even[3], odd[3])),
        drop(minus(even[3], odd[3])),
        drop(minus(even[2], odd[2])),
        drop(minus(even[1], odd[1])),
        drop(minus(even[0], odd[0])),
    ]
}

/// Converts JFIF's luma and chroma to RGB.
pub(super) fn ycc_to_rgb([luma, blue, red]: [&[u8]; 3], rgb: &mut [OutSample]) {
    let chroma = blue.iter().zip(red);
    for ((&y, (&cb, &cr)), rgb) in luma.iter().zip(chroma).zip(rgb.as_chunks_mut().0) {
        *rgb = ycc_pixel(y, cb, cr).map(OutSample::new);
    }
}

fn ycc_pixel(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let [y, cb, cr] = [y.into(), i32::from(cb) - 128, i32::from(cr) - 128];
    [
        y + ((91_881 * cr + HALF) >> 16),
        y + ((-22_554 * cb - 46_802 * cr + HALF) >> 16),
        y + ((116_130 * cb + HALF) >> 16),
    ]
    .map(|value| value.clamp(0, 255) as u8)
}

/// Doubles the columns of `row`. Each sample gives a left and a right output sample: 3/4 of itself
/// and 1/4 of its neighbour on that side. At the ends the neighbour is the sample itself.
pub(super) fn double_columns(row: &[u8], out: &mut [OutSample]) {
    let value = |x: usize| row[x].into();
    let triples = row
        .windows(3)
        .map(|row| [row[0], row[1], row[2]].map(u16::from));
    double::<2>(row.len(), out, value, triples, [1, 2]);
}

/// As [`double_columns`], for a row between two rows: 3/4 of `near` and 1/4 of `far`.
pub(super) fn double_columns_between(near: &[u8], far: &[u8], out: &mut [OutSample]) {
    let value = |x: usize| u16::from(near[x]) * 3 + u16::from(far[x]);
    let triples = near.windows(3).zip(far.windows(3));
    let triples =
        triples.map(|(near, far)| from_fn(|x| u16::from(near[x]) * 3 + u16::from(far[x])));
    double::<4>(near.len(), out, value, triples, [8, 7]);
}

/// Doubles `width` columns. `triples` yields each inner column with its neighbours, and `value` gives the
/// columns at the ends. The biases alternately round halves down and up.
fn double<const BITS: u32>(
    width: usize,
    out: &mut [OutSample],
    value: impl Fn(usize) -> u16,
    triples: impl Iterator<Item = [u16; 3]>,
    [left_bias, right_bias]: [u16; 2],
) {
    let out = out.as_chunks_mut::<2>().0;
    let split = |[left, here, right]: [u16; 3]| {
        [here * 3 + left + left_bias, here * 3 + right + right_bias]
            .map(|sum| OutSample::new((sum >> BITS) as u8))
    };
    for (out, triple) in out[1..].iter_mut().zip(triples) {
        *out = split(triple);
    }
    let last = width - 1;
    out[0] = split([0, 0, last.min(1)].map(&value));
    out[last] = split([last.saturating_sub(1), last, last].map(&value));
}
