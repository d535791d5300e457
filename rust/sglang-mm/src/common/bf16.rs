//! Converts f32 to the 16 bits of a bf16, which `NumPy` stores as `uint16`.
//!
//! The crate `half` gives the same bits (compared for all 2^32 inputs), but it would compile
//! `zerocopy` and its proc macro for this one function, which only fills tables of 256 values.
//!
//! Invariant: rounds to nearest, ties to even, as frameworks do.

/// The bits of the bf16 nearest to `value`. A NaN stays a NaN.
#[must_use]
pub fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // Sets the quiet bit, so that dropping the low bits cannot turn a NaN into infinity.
        return (bits >> 16) as u16 | 0x40;
    }
    // Adds one half if the kept part is odd, and just below one half otherwise: ties go to even.
    let rounding = 0x7fff + ((bits >> 16) & 1);
    ((bits + rounding) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::bf16_bits;

    #[test]
    fn rounds_to_nearest_with_ties_to_even() {
        #[rustfmt::skip]
        let cases: &[(&str, u32, u16)] = &[
            ("exact",                      0x3f80_0000, 0x3f80),
            ("below one half rounds down", 0x3f80_7fff, 0x3f80),
            ("one half, even stays",       0x3f80_8000, 0x3f80),
            ("one half, odd rounds up",    0x3f81_8000, 0x3f82),
            ("above one half rounds up",   0x3f80_8001, 0x3f81),
            ("the carry reaches the exponent", 0x3fff_ffff, 0x4000),
            ("the sign is kept",           0xbf81_8000, 0xbf82),
            ("minus zero",                 0x8000_0000, 0x8000),
            ("the largest overflows",      0x7f7f_ffff, 0x7f80),
            ("infinity",                   0x7f80_0000, 0x7f80),
            ("minus infinity",             0xff80_0000, 0xff80),
            ("a NaN with low bits only",   0x7f80_0001, 0x7fc0),
            ("a NaN with all bits",        0xffff_ffff, 0xffff),
        ];
        for &(name, bits, expected) in cases {
            assert_eq!(expected, bf16_bits(f32::from_bits(bits)), "{name}");
        }
    }
}
