//! What a pass computes, for one row of output: the definition of every variant.
//!
//! The sum starts at one half, adds `pixel * weight` per tap, drops the fraction bits
//! and clamps to a byte. Integer sums do not depend on the order of their terms, so a
//! variant may add in any order and must still agree with this to the bit.
//!
//! Invariant: plain safe Rust, no instruction set assumed.

use super::{
    axis::{Axis, Taps},
    cycle::Cycle,
};

/// Bytes of a pixel.
pub(super) const CHANNELS: usize = 3;

/// Bytes of a row that the vertical pass sums at once, so that the sums stay in the
/// nearest cache while the source rows pass by.
const BLOCK: usize = 128;

pub(super) fn half(precision: u32) -> i32 {
    (1 << precision) >> 1
}

fn to_byte(sum: i32, precision: u32) -> u8 {
    (sum >> precision).clamp(0, 255) as u8
}

/// One row of output, from pixel `first` on, from its row of input.
pub(super) fn horizontal(src: &[u8], axis: &Axis, first: usize, out: &mut [u8]) {
    let precision = axis.precision();
    for (taps, pixel) in axis.taps_from(first).zip(out.chunks_exact_mut(CHANNELS)) {
        let window = &src[taps.start * CHANNELS..][..taps.weights.len() * CHANNELS];
        let mut sums = [half(precision); CHANNELS];
        for (seen, &weight) in window.chunks_exact(CHANNELS).zip(taps.weights) {
            for (sum, &byte) in sums.iter_mut().zip(seen) {
                *sum += i32::from(byte) * weight;
            }
        }
        for (byte, sum) in pixel.iter_mut().zip(sums) {
            *byte = to_byte(sum, precision);
        }
    }
}

/// One row of output from the rows that `taps` names; all rows have the same length.
pub(super) fn vertical(rows: Cycle<'_>, taps: Taps<'_>, precision: u32, out: &mut [u8]) {
    debug_assert_eq!(rows.row_len(), out.len());
    for (block, bytes) in out.chunks_mut(BLOCK).enumerate() {
        let mut sums = [half(precision); BLOCK];
        let mut rows = rows;
        for &weight in taps.weights {
            let seen = &rows.next_row()[block * BLOCK..][..bytes.len()];
            for (sum, &byte) in sums.iter_mut().zip(seen) {
                *sum += i32::from(byte) * weight;
            }
        }
        for (byte, sum) in bytes.iter_mut().zip(sums) {
            *byte = to_byte(sum, precision);
        }
    }
}
