//! The kernels one sample at a time: the definition that every other set must equal bit for bit.

/// Bits behind the point of the constants below.
const CONSTANT_BITS: u32 = 13;

/// Bits behind the point that the first pass leaves to the second.
const PASS_BITS: u32 = 2;

/// The constants of the transform by Loeffler, Ligtenberg and Moschytz: each the weight of a pair of
/// inputs, `CONSTANT_BITS` behind the point.
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

/// Bits that each of the two passes drops.
pub(super) const DROPPED: [u32; 2] = [CONSTANT_BITS - PASS_BITS, CONSTANT_BITS + PASS_BITS + 3];

/// Dequantized coefficients of a block to its samples: libjpeg's accurate integer transform.
///
/// Inputs wrap to 16 bits, and what a pass hands on is clamped to them. That matters only in damaged
/// files, and there it is what libjpeg-turbo's vector code does, which is what Pillow runs.
pub(super) fn inverse_dct(
    multipliers: &[i16; 64],
    coefficients: &[i16; 64],
    rows: [&mut [u8; 8]; 8],
) {
    let inputs: [i16; 64] = std::array::from_fn(|i| coefficients[i].wrapping_mul(multipliers[i]));
    let flat = coefficients[8..]
        .iter()
        .all(|&coefficient| coefficient == 0);
    let mut half = [[0; 8]; 8];
    for x in 0..8 {
        half[x] = if flat {
            // Not the same as the pass below, for constants out of range: nothing is clamped.
            [inputs[x].wrapping_shl(PASS_BITS); 8]
        } else {
            pass(std::array::from_fn(|y| inputs[y * 8 + x]), DROPPED[0])
        };
    }
    for (y, row) in rows.into_iter().enumerate() {
        let samples = pass(std::array::from_fn(|x| half[x][y]), DROPPED[1]);
        *row = samples.map(sample);
    }
}

/// A transformed value, clamped to 8 bits, as a sample.
fn sample(value: i16) -> u8 {
    (value.clamp(-128, 127) + 128) as u8
}

/// One dimension of the transform.
fn pass(input: [i16; 8], dropped: u32) -> [i16; 8] {
    use weights::{EVEN_2, EVEN_6, ODD_1, ODD_3, ODD_5, ODD_7, SUM_3, SUM_4};
    let weigh = |a: i16, b: i16, weights: [i16; 2]| {
        i32::from(a) * i32::from(weights[0]) + i32::from(b) * i32::from(weights[1])
    };
    let [i0, i1, i2, i3, i4, i5, i6, i7] = input;

    let sum = i32::from(i0.wrapping_add(i4)) << CONSTANT_BITS;
    let difference = i32::from(i0.wrapping_sub(i4)) << CONSTANT_BITS;
    let (outer, inner) = (weigh(i2, i6, EVEN_2), weigh(i2, i6, EVEN_6));
    let even = [
        sum + outer,
        difference + inner,
        difference - inner,
        sum - outer,
    ];

    let (s3, s4) = (i7.wrapping_add(i3), i5.wrapping_add(i1));
    let (z3, z4) = (weigh(s3, s4, SUM_3), weigh(s3, s4, SUM_4));
    let odd = [
        weigh(i7, i1, ODD_1) + z4,
        weigh(i5, i3, ODD_3) + z3,
        weigh(i5, i3, ODD_5) + z4,
        weigh(i7, i1, ODD_7) + z3,
    ];

    let round = 1 << (dropped - 1);
    let clamp =
        |value: i32| ((value + round) >> dropped).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
    std::array::from_fn(|i| match i {
        0..4 => clamp(even[i] + odd[i]),
        _ => clamp(even[7 - i] - odd[7 - i]),
    })
}

/// JFIF's luma and chroma to RGB.
pub(super) fn ycc_to_rgb([luma, blue, red]: [&[u8]; 3], rgb: &mut [u8]) {
    let chroma = blue.iter().zip(red);
    for ((&y, (&cb, &cr)), rgb) in luma.iter().zip(chroma).zip(rgb.as_chunks_mut().0) {
        *rgb = ycc_pixel(y, cb, cr);
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

/// Two samples for each one of `row`: three parts of it and one of the neighbour on that side, or of
/// itself at the ends.
pub(super) fn double_columns(row: &[u8], out: &mut [u8]) {
    double(row.len(), out, [1, 2], 2, |x| row[x].into());
}

/// The same between two rows: three parts of `near` and one of `far`, then as above.
pub(super) fn double_columns_between(near: &[u8], far: &[u8], out: &mut [u8]) {
    double(near.len(), out, [8, 7], 4, |x| {
        u16::from(near[x]) * 3 + u16::from(far[x])
    });
}

/// Doubles `width` columns of the values that `at` gives, dropping `bits` after adding a bias.
fn double(width: usize, out: &mut [u8], bias: [u16; 2], bits: u32, at: impl Fn(usize) -> u16) {
    for (x, out) in out
        .as_chunks_mut::<2>()
        .0
        .iter_mut()
        .enumerate()
        .take(width)
    {
        let sides = [x.saturating_sub(1), (x + 1).min(width - 1)];
        for ((sample, side), bias) in out.iter_mut().zip(sides).zip(bias) {
            *sample = ((at(x) * 3 + at(side) + bias) >> bits) as u8;
        }
    }
}
