//! bf16 as its 16 bits: Rust has no such type, and `NumPy` sees `uint16`.
//!
//! Invariant: rounding is to nearest, ties to even, as every framework does it.

/// The bits of the bf16 that is nearest to `value`; a NaN stays one.
#[must_use]
pub fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // Quiet, and never rounded up to infinity.
        return (bits >> 16) as u16 | 0x40;
    }
    // Just below a half, and a half where the kept part is odd.
    let half = 0x7fff + ((bits >> 16) & 1);
    ((bits + half) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::bf16_bits;

    #[test]
    fn nearest_with_ties_to_even() {
        #[rustfmt::skip]
        let cases: &[(&str, u32, u16)] = &[
            ("exact",                      0x3f80_0000, 0x3f80),
            ("below a half goes down",     0x3f80_7fff, 0x3f80),
            ("a half, even stays",         0x3f80_8000, 0x3f80),
            ("a half, odd goes up",        0x3f81_8000, 0x3f82),
            ("above a half goes up",       0x3f80_8001, 0x3f81),
            ("the carry reaches the exponent", 0x3fff_ffff, 0x4000),
            ("the sign is kept",           0xbf81_8000, 0xbf82),
            ("minus zero",                 0x8000_0000, 0x8000),
            ("the largest overflows",      0x7f7f_ffff, 0x7f80),
            ("infinity",                   0x7f80_0000, 0x7f80),
            ("minus infinity",             0xff80_0000, 0xff80),
            ("a NaN of low bits",          0x7f80_0001, 0x7fc0),
            ("a NaN of all bits",          0xffff_ffff, 0xffff),
        ];
        for &(name, bits, expected) in cases {
            assert_eq!(expected, bf16_bits(f32::from_bits(bits)), "{name}");
        }
    }
}
