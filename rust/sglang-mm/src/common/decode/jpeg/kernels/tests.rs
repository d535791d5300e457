//! Compares each set of kernels with the scalar reference, and the reference with the exact formula.

use super::{Kernels, OutSample, scalar};

/// A small random generator with a fixed seed, so that a failing case can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// The output type of the kernels.
fn as_output(out: &mut [u8]) -> &mut [OutSample] {
    // SAFETY: the layout is the same, and kernels write only initialised samples.
    unsafe { &mut *(std::ptr::from_mut(out) as *mut [OutSample]) }
}

type Block = [i16; 64];

fn transformed(set: &Kernels, multipliers: &Block, coefficients: &Block) -> [[u8; 8]; 8] {
    let mut samples = [[0; 8]; 8];
    let mut rows = samples.each_mut().map(|row| row.as_mut_ptr());
    // SAFETY: two blocks, and eight rows of eight samples from column 0.
    unsafe {
        (set.inverse_dct)(
            multipliers.as_ptr(),
            coefficients.as_ptr(),
            rows.as_mut_ptr().cast(),
            0,
        );
    }
    samples
}

/// Full, sparse, single-row and constant blocks, with typical and with extreme values.
fn blocks() -> impl Iterator<Item = (Block, Block)> {
    let mut random = Random(1);
    (0..40_000).map(move |case| {
        let kept = [64, 8, 1, 20, 10][case % 5];
        let density = [100, 10, 50][case / 5 % 3];
        let shift = [0, 4, 8][case / 15 % 3];
        let coefficients = std::array::from_fn(|i| {
            let value = (random.next() as i16) >> shift;
            if i < kept && random.next() % 100 < density {
                value
            } else {
                0
            }
        });
        let multipliers = std::array::from_fn(|_| match case % 2 {
            0 => (random.next() % 40) as i16 + 1,
            _ => random.next() as i16,
        });
        (multipliers, coefficients)
    })
}

#[test]
fn every_transform_equals_the_reference() {
    for (name, set) in Kernels::supported() {
        for (multipliers, coefficients) in blocks() {
            let expected = transformed(&Kernels::SCALAR, &multipliers, &coefficients);
            let got = transformed(set, &multipliers, &coefficients);
            assert_eq!(got, expected, "{name}: {multipliers:?} {coefficients:?}");
        }
    }
}

/// The inverse transform as defined by the JPEG standard.
fn exact_sample(coefficients: &Block, x: usize, y: usize) -> f64 {
    let wave = |at: usize, frequency: usize| {
        let angle = (2 * at + 1) as f64 * frequency as f64 * std::f64::consts::PI / 16.0;
        angle.cos() * if frequency == 0 { 0.5_f64.sqrt() } else { 1.0 }
    };
    let terms = coefficients.iter().enumerate();
    let sum: f64 = terms
        .map(|(i, &value)| f64::from(value) * wave(x, i % 8) * wave(y, i / 8))
        .sum();
    (sum / 4.0 + 128.0).clamp(0.0, 255.0)
}

#[test]
fn the_transform_matches_the_standard_within_rounding() {
    let mut random = Random(2);
    for case in 0..300 {
        let density = [5, 30, 100][case % 3];
        let coefficients: Block = std::array::from_fn(|_| {
            let value = (random.next() % 600) as i16 - 300;
            if random.next() % 100 < density {
                value
            } else {
                0
            }
        });
        let samples = transformed(&Kernels::SCALAR, &[1; 64], &coefficients);
        for (y, row) in samples.iter().enumerate() {
            for (x, &sample) in row.iter().enumerate() {
                let exact = exact_sample(&coefficients, x, y);
                let error = (f64::from(sample) - exact).abs();
                assert!(error <= 1.0, "case {case} at {x},{y}: {sample} for {exact}");
            }
        }
    }
}

#[test]
fn every_colour_conversion_equals_the_reference() {
    let luma: Vec<u8> = (0..=255).collect();
    for (name, set) in Kernels::supported() {
        for chroma in 0..=u16::MAX {
            let [blue, red] = chroma.to_le_bytes().map(|shade| [shade; 256]);
            let [mut got, mut expected] = [[0; 768]; 2];
            // SAFETY: three rows of 256 samples and one of as many pixels.
            unsafe {
                let (y, rgb) = (luma.as_ptr(), got.as_mut_ptr());
                (set.ycc_to_rgb)(y, blue.as_ptr(), red.as_ptr(), rgb, 256);
            }
            scalar::ycc_to_rgb([&luma, &blue, &red], as_output(&mut expected));
            assert_eq!(got, expected, "{name}: {chroma:04x}");
        }
    }
}

/// Larger than any output of the test below, to detect writes past its end.
const OUT_LEN: usize = 600;

/// Checks the output `got` of a kernel, which was filled with sevens before. The first `length` samples
/// must equal those of `reference`, and the others must still be sevens. Also checks that `reference`
/// writes all of the first `length` samples.
fn check_output(
    case: &str,
    length: usize,
    got: &[u8; OUT_LEN],
    reference: impl Fn(&mut [OutSample]),
) {
    let [mut expected, mut repeated] = [[7; OUT_LEN], [8; OUT_LEN]];
    reference(as_output(&mut expected[..length]));
    reference(as_output(&mut repeated[..length]));
    assert_eq!(repeated[..length], expected[..length], "{case}: unwritten");
    assert_eq!(*got, expected, "{case}");
}

#[test]
fn every_width_equals_the_reference_and_stays_within_its_output() {
    let mut random = Random(3);
    for (name, set) in Kernels::supported() {
        for width in 1..=150 {
            let [a, b, c] = std::array::from_fn(|_| random.bytes(width));
            let [a, b, c] = [&a, &b, &c].map(Vec::as_slice);
            let case = |kernel| format!("{name}: {kernel} of {width}");

            let mut out = [7; OUT_LEN];
            // SAFETY: rows of `width` samples, and an output of at least three times as many.
            unsafe {
                (set.ycc_to_rgb)(a.as_ptr(), b.as_ptr(), c.as_ptr(), out.as_mut_ptr(), width);
            }
            check_output(&case("colour"), width * 3, &out, |out| {
                scalar::ycc_to_rgb([a, b, c], out);
            });

            let mut out = [7; OUT_LEN];
            // SAFETY: a row of `width` samples, and an output of at least twice as many.
            unsafe {
                (set.double_columns)(a.as_ptr(), out.as_mut_ptr(), width);
            }
            check_output(&case("columns"), width * 2, &out, |out| {
                scalar::double_columns(a, out);
            });

            let mut out = [7; OUT_LEN];
            // SAFETY: two rows of `width` samples, and an output of at least twice as many.
            unsafe {
                (set.double_columns_between)(a.as_ptr(), b.as_ptr(), out.as_mut_ptr(), width);
            }
            check_output(&case("columns between rows"), width * 2, &out, |out| {
                scalar::double_columns_between(a, b, out);
            });
        }
    }
}

#[test]
fn doubling_weighs_the_nearer_sample_more() {
    let mut out = [0; 6];
    scalar::double_columns(&[0, 100, 200], as_output(&mut out));
    assert_eq!(out, [0, 25, 75, 125, 175, 200]);
    scalar::double_columns_between(&[0, 100, 200], &[100, 200, 44], as_output(&mut out));
    assert_eq!(out, [25, 50, 100, 134, 152, 161]);
}
