//! Computes one output row of a pass: the reference for every variant.
//!
//! The sum starts at one half, adds `pixel * weight` for each tap, drops the fraction bits and
//! clamps to a byte. Integer sums do not depend on the order of their terms. So a variant may
//! add in any order, and must still give the same bits.
//!
//! Invariant: plain safe Rust for any instruction set.

use super::{
    axis::{Axis, Taps},
    cycle::Cycle,
};

/// Bytes per pixel.
pub(super) const CHANNELS: usize = 3;

/// Bytes of a row that the vertical pass sums at once, so that the sums stay in the L1 cache
/// while the source rows are read.
const BLOCK: usize = 128;

pub(super) fn half(precision: u32) -> i32 {
    (1 << precision) >> 1
}

fn to_byte(sum: i32, precision: u32) -> u8 {
    (sum >> precision).clamp(0, 255) as u8
}

/// Resizes the row `src` into `out`, starting at target pixel `first`.
pub(super) fn horizontal(src: &[u8], axis: &Axis, first: usize, out: &mut [u8]) {
    let precision = axis.precision();
    for (taps, pixel) in axis.taps_from(first).zip(out.chunks_exact_mut(CHANNELS)) {
        let window = &src[taps.start * CHANNELS..][..taps.weights.len() * CHANNELS];
        let mut sums = [half(precision); CHANNELS];
        for (source, &weight) in window.chunks_exact(CHANNELS).zip(taps.weights) {
            for (sum, &byte) in sums.iter_mut().zip(source) {
                *sum += i32::from(byte) * weight;
            }
        }
        for (byte, sum) in pixel.iter_mut().zip(sums) {
            *byte = to_byte(sum, precision);
        }
    }
}

/// Combines the source rows of `taps` into `out`. All rows have the same length.
pub(super) fn vertical(rows: Cycle<'_>, taps: Taps<'_>, precision: u32, out: &mut [u8]) {
    debug_assert_eq!(rows.row_len(), out.len());
    for (block, bytes) in out.chunks_mut(BLOCK).enumerate() {
        let mut sums = [half(precision); BLOCK];
        let mut rows = rows;
        for &weight in taps.weights {
            let source = &rows.next_row()[block * BLOCK..][..bytes.len()];
            for (sum, &byte) in sums.iter_mut().zip(source) {
                *sum += i32::from(byte) * weight;
            }
        }
        for (byte, sum) in bytes.iter_mut().zip(sums) {
            *byte = to_byte(sum, precision);
        }
    }
}
