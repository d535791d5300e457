//! The source pixels that contribute to each target pixel along one axis, and their weights.
//!
//! Weights are computed once per axis in double precision, in Pillow's order of
//! operations. Then they are quantised to integers: with 22 fraction bits as in Pillow, or
//! with as many as fit 16-bit weights, as in `ATen`.
//!
//! Invariant: every window is inside the source and is not empty. The absolute weights of a
//! window sum to less than 2, so a sum of `255 * weight` plus the rounding half fits `i32`.

use std::{f64::consts::PI, ops::Range};

use crate::common::memory::{OutOfMemory, empty, zeroed};

/// A resampling kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filter {
    /// Windowed sinc over six source pixels.
    Lanczos,
    /// Cubic convolution over four source pixels, with a = -0.5.
    Bicubic,
}

impl Filter {
    /// Half the kernel's width in source pixels, for an axis that is not shrunk.
    fn support(self) -> f64 {
        match self {
            Self::Lanczos => 3.0,
            Self::Bicubic => 2.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        match self {
            Self::Lanczos => lanczos(x),
            Self::Bicubic => bicubic(x),
        }
    }
}

fn lanczos(x: f64) -> f64 {
    // Half open, as in Pillow.
    if (-3.0..3.0).contains(&x) {
        sinc(x) * sinc(x / 3.0)
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * PI;
    x.sin() / x
}

/// Factored as in Pillow: another form would round differently.
fn bicubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    let t = x.abs();
    if t < 1.0 {
        ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0
    } else if t < 2.0 {
        (((t - 5.0) * t + 8.0) * t - 4.0) * A
    } else {
        0.0
    }
}

/// How the number of fraction bits of the integer weights is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantization {
    /// Always 22.
    Pillow,
    /// The largest number up to 22 for which the largest weight is below 2^15.
    Aten,
}

/// 32 bits less 8 for the pixel and 2 for weights above 1.
const MAX_BITS: u32 = 22;

impl Quantization {
    fn precision(self, weights: &[f64]) -> u32 {
        match self {
            Self::Pillow => MAX_BITS,
            Self::Aten => {
                let largest = weights.iter().copied().fold(0.0, f64::max);
                (0..=MAX_BITS)
                    .take_while(|&bits| quantize(largest, bits) < 1 << 15)
                    .last()
                    .unwrap_or(0)
            }
        }
    }
}

/// Rounds to the nearest integer, halves away from zero.
fn quantize(weight: f64, bits: u32) -> i32 {
    let scaled = weight * f64::from(1_u32 << bits);
    // `as` truncates towards zero.
    (if weight < 0.0 {
        scaled - 0.5
    } else {
        scaled + 0.5
    }) as i32
}

/// The window of one target pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taps<'a> {
    /// The first source pixel.
    pub(super) start: usize,
    /// The weights of the source pixels from `start`.
    pub(super) weights: &'a [i32],
}

impl Taps<'_> {
    /// The source pixels of the window.
    pub(super) fn range(self) -> Range<usize> {
        self.start..self.start + self.weights.len()
    }
}

/// The range of source pixels that contribute to a target pixel.
pub(super) struct Window {
    pub(super) start: usize,
    len: usize,
}

/// The windows of every target pixel along one axis.
pub(super) struct Axis {
    windows: Vec<Window>,
    /// One row of `stride` weights per window. The unused weights are 0.
    weights: Vec<i32>,
    stride: usize,
    precision: u32,
}

impl Axis {
    pub(super) fn new(
        filter: Filter,
        quantization: Quantization,
        from: usize,
        to: usize,
    ) -> Result<Self, OutOfMemory> {
        let kernel = Kernel::new(filter, from, to);
        let stride = kernel.max_taps();
        let len = to.checked_mul(stride).ok_or(OutOfMemory)?;
        // Allocates everything first, so that a lack of memory is reported before any work.
        let mut windows = empty(to)?;
        let mut weights = zeroed(len)?;
        let mut exact = zeroed::<f64>(len)?;
        for (x, row) in exact.chunks_exact_mut(stride).enumerate() {
            let window = kernel.window(x);
            kernel.fill(x, &window, row);
            windows.push(window);
        }
        let precision = quantization.precision(&exact);
        for (integer, &weight) in weights.iter_mut().zip(&exact) {
            *integer = quantize(weight, precision);
        }
        Ok(Self {
            windows,
            weights,
            stride,
            precision,
        })
    }

    /// Number of target pixels.
    pub(super) fn len(&self) -> usize {
        self.windows.len()
    }

    /// The largest number of source pixels per window.
    pub(super) fn max_taps(&self) -> usize {
        self.stride
    }

    /// Fraction bits of the weights.
    pub(super) fn precision(&self) -> u32 {
        self.precision
    }

    /// The windows of all target pixels. Their starts never decrease.
    pub(super) fn windows(&self) -> &[Window] {
        &self.windows
    }

    pub(super) fn taps(&self, x: usize) -> Taps<'_> {
        let Window { start, len } = self.windows[x];
        Taps {
            start,
            weights: &self.weights[x * self.stride..][..len],
        }
    }

    /// The windows of the target pixels from `first`.
    pub(super) fn taps_from(&self, first: usize) -> impl Iterator<Item = Taps<'_>> {
        self.windows[first..]
            .iter()
            .zip(self.weights[first * self.stride..].chunks_exact(self.stride))
            .map(|(window, weights)| Taps {
                start: window.start,
                weights: &weights[..window.len],
            })
    }
}

/// The filter scaled to one axis: the formulas, before any rounding.
struct Kernel {
    filter: Filter,
    from: usize,
    scale: f64,
    support: f64,
    inverse: f64,
}

impl Kernel {
    fn new(filter: Filter, from: usize, to: usize) -> Self {
        let scale = from as f64 / to as f64;
        let stretch = scale.max(1.0);
        Self {
            filter,
            from,
            scale,
            support: filter.support() * stretch,
            inverse: 1.0 / stretch,
        }
    }

    fn max_taps(&self) -> usize {
        (self.support.ceil() as usize * 2 + 1).min(self.from)
    }

    fn center(&self, x: usize) -> f64 {
        (x as f64 + 0.5) * self.scale
    }

    fn window(&self, x: usize) -> Window {
        let center = self.center(x);
        // `as` truncates towards zero and clamps negative values to 0.
        let start = (center - self.support + 0.5) as usize;
        let end = ((center + self.support + 0.5) as usize).min(self.from);
        Window {
            start,
            len: end - start,
        }
    }

    /// Writes the weights of `window`, normalised to a sum of 1.
    fn fill(&self, x: usize, window: &Window, row: &mut [f64]) {
        let center = self.center(x);
        let row = &mut row[..window.len];
        let mut sum = 0.0;
        for (tap, weight) in row.iter_mut().enumerate() {
            let distance = (tap as f64 + window.start as f64 - center + 0.5) * self.inverse;
            *weight = self.filter.at(distance);
            sum += *weight;
        }
        if sum != 0.0 {
            for weight in row {
                *weight /= sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Filter, Quantization};

    fn axis(filter: Filter, quantization: Quantization, from: usize, to: usize) -> Axis {
        Axis::new(filter, quantization, from, to).ok().unwrap()
    }

    #[test]
    fn aten_precision_depends_on_the_largest_weight() {
        // The last row reaches the limit of 22.
        #[rustfmt::skip]
        let cases = [
            (8, 5, 15), (6, 4, 15), (53, 106, 14), (37, 74, 14), (320, 111, 16), (200, 90, 16),
            (64, 33, 15), (100, 50, 16), (300, 60, 17), (2500, 1, 22),
        ];
        for (from, to, bits) in cases {
            let axis = axis(Filter::Bicubic, Quantization::Aten, from, to);
            assert_eq!(bits, axis.precision(), "{from} to {to}");
            assert!(
                axis.taps_from(0)
                    .all(|taps| taps.weights.iter().all(|w| *w < 1 << 15))
            );
        }
    }

    /// Checks the invariant of the module for every pair of small lengths.
    #[test]
    fn windows_fit_and_sums_stay_in_range() {
        for filter in [Filter::Lanczos, Filter::Bicubic] {
            for quantization in [Quantization::Pillow, Quantization::Aten] {
                for from in 1..40 {
                    for to in 1..40 {
                        let axis = axis(filter, quantization, from, to);
                        assert_eq!(to, axis.len());
                        let starts = axis.windows().iter().map(|window| window.start);
                        assert!(starts.is_sorted(), "{filter:?} {from} to {to}");
                        for (x, taps) in axis.taps_from(0).enumerate() {
                            let case = format!("{filter:?} {from} to {to}, pixel {x}");
                            assert_eq!(taps, axis.taps(x), "{case}");
                            assert!(!taps.weights.is_empty(), "{case}");
                            assert!(taps.start + taps.weights.len() <= from, "{case}");
                            let size: i64 = taps.weights.iter().map(|w| i64::from(w.abs())).sum();
                            assert!(size < 2 << axis.precision(), "{case}: {size}");
                        }
                    }
                }
            }
        }
    }
}
