//! A pass along one axis, prepared once for the chosen instruction set.
//!
//! Invariant: every instruction set gives the bytes of `scalar`.

#[cfg(target_arch = "x86_64")]
use super::{avx2, packed::Packed};
use super::{axis::Axis, cycle::Cycle, scalar};
use crate::common::{isa::Isa, memory::OutOfMemory};

/// How a pass is computed.
enum Variant {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(Packed),
}

impl Variant {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
    fn new(isa: Isa, axis: &Axis, lanes: usize) -> Result<Self, OutOfMemory> {
        assert!(isa.is_supported(), "this CPU does not support {isa:?}");
        match isa {
            Isa::Scalar => Ok(Self::Scalar),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Packed::new(axis, lanes).map(Self::Avx2),
        }
    }
}

/// The horizontal pass: resizes single rows.
pub(super) struct Horizontal {
    axis: Axis,
    variant: Variant,
}

impl Horizontal {
    pub(super) fn new(isa: Isa, axis: Axis) -> Result<Self, OutOfMemory> {
        let variant = Variant::new(isa, &axis, 4)?;
        Ok(Self { axis, variant })
    }

    /// Resizes the row `src` into `out`.
    pub(super) fn run(&self, src: &[u8], out: &mut [u8]) {
        debug_assert_eq!(out.len(), self.axis.len() * scalar::CHANNELS);
        match &self.variant {
            Variant::Scalar => scalar::horizontal(src, &self.axis, 0, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Variant::new` asserts that the CPU has AVX2.
            Variant::Avx2(packed) => unsafe { avx2::horizontal(src, &self.axis, packed, out) },
        }
    }
}

/// The vertical pass: combines rows into one.
pub(super) struct Vertical {
    pub(super) axis: Axis,
    variant: Variant,
}

impl Vertical {
    pub(super) fn new(isa: Isa, axis: Axis) -> Result<Self, OutOfMemory> {
        let variant = Variant::new(isa, &axis, 2)?;
        Ok(Self { axis, variant })
    }

    /// The first source row of output row `y`.
    pub(super) fn start(&self, y: usize) -> usize {
        self.axis.windows()[y].start
    }

    /// Computes output row `y`. `rows` starts at the first source row of `y`, and its rows are
    /// as long as `out`.
    pub(super) fn run(&self, y: usize, rows: Cycle<'_>, out: &mut [u8]) {
        let precision = self.axis.precision();
        match &self.variant {
            Variant::Scalar => scalar::vertical(rows, self.axis.taps(y), precision, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Variant::new` asserts that the CPU has AVX2.
            Variant::Avx2(packed) => unsafe {
                avx2::vertical(rows, self.axis.taps(y), packed, y, precision, out);
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::axis::{Axis, Filter, Quantization},
        Cycle, Horizontal, Isa, Vertical,
    };

    const KINDS: [(Filter, Quantization); 3] = [
        (Filter::Bicubic, Quantization::Aten),
        (Filter::Bicubic, Quantization::Pillow),
        (Filter::Lanczos, Quantization::Pillow),
    ];

    /// Noise, and noise of extreme values only, which reaches the clamps.
    fn contents(len: usize) -> [Vec<u8>; 2] {
        let noise = |at: usize| (at * at / 7 + at * 31) as u8;
        let extreme = |at| if noise(at) < 128 { 0 } else { 255 };
        [
            (0..len).map(noise).collect(),
            (0..len).map(extreme).collect(),
        ]
    }

    fn axis((filter, quantization): (Filter, Quantization), from: usize, to: usize) -> Axis {
        Axis::new(filter, quantization, from, to).ok().unwrap()
    }

    /// Tries many output lengths, and windows of one tap to thousands.
    #[test]
    fn every_variant_resizes_rows_like_scalar() {
        let run = |isa, axis, src: &[u8], to| {
            let mut out = vec![0; to * 3];
            Horizontal::new(isa, axis).ok().unwrap().run(src, &mut out);
            out
        };
        for to in 1..=200 {
            for from in [1, 2, 3, 4, 5, 6, 7, 16, to + 1, 3 * to - 1, 199, 1000] {
                for (kind, src) in KINDS
                    .iter()
                    .flat_map(|k| contents(from * 3).map(|c| (*k, c)))
                {
                    let expected = run(Isa::Scalar, axis(kind, from, to), &src, to);
                    for isa in Isa::supported() {
                        let got = run(isa, axis(kind, from, to), &src, to);
                        assert_eq!(expected, got, "{isa:?} {kind:?} {from} to {to}");
                    }
                }
            }
        }
    }

    /// Tries many row lengths, and windows that end with the last row.
    #[test]
    fn every_variant_combines_rows_like_scalar() {
        for row_len in 1..=200 {
            for (from, to) in [(1, 3), (2, 1), (3, 7), (9, 4), (30, 31), (100, 3)] {
                for (kind, src) in KINDS
                    .iter()
                    .flat_map(|k| contents(from * row_len).map(|c| (*k, c)))
                {
                    let scalar = Vertical::new(Isa::Scalar, axis(kind, from, to))
                        .ok()
                        .unwrap();
                    for isa in Isa::supported() {
                        let pass = Vertical::new(isa, axis(kind, from, to)).ok().unwrap();
                        for y in 0..to {
                            let rows = Cycle::new(&src, row_len, pass.start(y));
                            let (mut expected, mut got) = (vec![0; row_len], vec![0; row_len]);
                            scalar.run(y, rows, &mut expected);
                            pass.run(y, rows, &mut got);
                            assert_eq!(
                                expected, got,
                                "{isa:?} {kind:?} {from} to {to}, row {y} of {row_len}"
                            );
                        }
                    }
                }
            }
        }
    }
}
