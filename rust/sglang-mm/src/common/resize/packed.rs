//! Weights as the 16-bit numbers that multiply-add instructions take.
//!
//! Weights that do not fit 16 bits are split: `weight = high * 2^15 + low`, where `low` is
//! never negative. Sums of the parts may wrap modulo 2^32. The joined sum is known to fit
//! 32 bits, so it equals the sum of the scalar definition.
//!
//! Invariant: windows are padded to whole groups with weights of 0, and all windows of an
//! axis have the same number of groups.

use super::axis::Axis;
use crate::common::memory::{OutOfMemory, zeroed};

/// Bits in the low part.
pub(super) const LOW_BITS: i32 = 15;

/// The weights of an axis, laid out `[target pixel][group][part][lane]`. The high part comes
/// before the low part.
pub(super) struct Packed {
    /// Groups of taps per window.
    pub(super) groups: usize,
    /// 1 if all weights fit 16 bits, else 2.
    pub(super) parts: usize,
    /// Numbers per window.
    pub(super) stride: usize,
    weights: Vec<i16>,
}

impl Packed {
    /// Packs the weights of `axis` in groups of `lanes` taps.
    pub(super) fn new(axis: &Axis, lanes: usize) -> Result<Self, OutOfMemory> {
        let max_taps = axis
            .taps_from(0)
            .map(|taps| taps.weights.len())
            .max()
            .unwrap_or(0);
        let fit = axis
            .taps_from(0)
            .all(|taps| taps.weights.iter().all(|&w| i16::try_from(w).is_ok()));
        let (groups, parts) = (max_taps.div_ceil(lanes), if fit { 1 } else { 2 });
        let stride = groups * parts * lanes;
        let mut weights = zeroed(axis.len().checked_mul(stride).ok_or(OutOfMemory)?)?;
        for (taps, window) in axis.taps_from(0).zip(weights.chunks_exact_mut(stride)) {
            let groups = window.chunks_exact_mut(parts * lanes);
            for (group, taps) in groups.zip(taps.weights.chunks(lanes)) {
                for (lane, &weight) in taps.iter().enumerate() {
                    if fit {
                        group[lane] = weight as i16;
                    } else {
                        group[lane] = (weight >> LOW_BITS) as i16;
                        group[lanes + lane] = (weight & ((1 << LOW_BITS) - 1)) as i16;
                    }
                }
            }
        }
        Ok(Self {
            groups,
            parts,
            stride,
            weights,
        })
    }

    /// The numbers of all windows.
    pub(super) fn weights(&self) -> &[i16] {
        &self.weights
    }

    /// The numbers of the window of target pixel `x`.
    pub(super) fn window(&self, x: usize) -> &[i16] {
        &self.weights[x * self.stride..][..self.stride]
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::axis::{Axis, Filter, Quantization},
        LOW_BITS, Packed,
    };

    /// The parts join to the original weights, and the padding of a group is 0.
    #[test]
    fn parts_join_to_the_original_weights() {
        let mut parts_seen = [false; 3];
        for quantization in [Quantization::Pillow, Quantization::Aten] {
            for (from, to) in [
                (1, 1),
                (2, 9),
                (9, 2),
                (40, 39),
                (100, 1),
                (2000, 3),
                (7, 50),
            ] {
                let axis = Axis::new(Filter::Bicubic, quantization, from, to)
                    .ok()
                    .unwrap();
                for lanes in [2, 4] {
                    let packed = Packed::new(&axis, lanes).ok().unwrap();
                    parts_seen[packed.parts] = true;
                    for (x, taps) in axis.taps_from(0).enumerate() {
                        let joined: Vec<i32> = packed
                            .window(x)
                            .chunks_exact(packed.parts * lanes)
                            .flat_map(|group| {
                                (0..lanes).map(|lane| match packed.parts {
                                    1 => i32::from(group[lane]),
                                    _ => {
                                        (i32::from(group[lane]) << LOW_BITS)
                                            + i32::from(group[lanes + lane])
                                    }
                                })
                            })
                            .collect();
                        let (weights, padding) = joined.split_at(taps.weights.len());
                        assert_eq!(taps.weights, weights, "{from} to {to}, pixel {x}");
                        assert!(padding.iter().all(|&w| w == 0), "{from} to {to}, pixel {x}");
                    }
                }
            }
        }
        assert_eq!([false, true, true], parts_seen);
    }
}
