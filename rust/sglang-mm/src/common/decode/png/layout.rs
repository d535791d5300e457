//! Where the rows of the pixel data go in the image: one pass, or the seven of Adam7.

use crate::common::Size;

/// The part of the image that the data covers: all of it, unless an animation frame is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) left: usize,
    pub(super) top: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

impl Region {
    pub(super) fn whole(size: Size) -> Self {
        Self {
            left: 0,
            top: 0,
            width: size.width,
            height: size.height,
        }
    }
}

/// A grid of pixels that is stored row after row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) left: usize,
    pub(super) top: usize,
    pub(super) step_x: usize,
    pub(super) step_y: usize,
    /// Pixels per row of the pass.
    pub(super) width: usize,
    /// Rows of the pass.
    pub(super) height: usize,
}

/// First column, first row, column step and row step of each pass of Adam7.
const ADAM7: [[usize; 4]; 7] = [
    [0, 0, 8, 8],
    [4, 0, 8, 8],
    [0, 4, 4, 8],
    [2, 0, 4, 4],
    [0, 2, 2, 4],
    [1, 0, 2, 2],
    [0, 1, 1, 2],
];

/// The passes that are not empty, in the order of the file.
pub(super) fn passes(region: Region, interlaced: bool) -> Vec<Pass> {
    if !interlaced {
        return vec![Pass {
            left: region.left,
            top: region.top,
            step_x: 1,
            step_y: 1,
            width: region.width,
            height: region.height,
        }];
    }
    // Pillow places an interlaced frame at the top left corner and ignores the offset of the frame.
    ADAM7
        .iter()
        .map(|&[left, top, step_x, step_y]| Pass {
            left,
            top,
            step_x,
            step_y,
            width: region.width.saturating_sub(left).div_ceil(step_x),
            height: region.height.saturating_sub(top).div_ceil(step_y),
        })
        .filter(|pass| pass.width > 0 && pass.height > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_passes_cover_each_pixel_once() {
        for width in 1..20 {
            for height in 1..20 {
                let region = Region {
                    left: 0,
                    top: 0,
                    width,
                    height,
                };
                for interlaced in [false, true] {
                    let mut hits = vec![0; width * height];
                    for pass in passes(region, interlaced) {
                        for y in 0..pass.height {
                            for x in 0..pass.width {
                                let column = pass.left + x * pass.step_x;
                                hits[(pass.top + y * pass.step_y) * width + column] += 1;
                            }
                        }
                    }
                    assert!(
                        hits.iter().all(|&hit| hit == 1),
                        "{width}x{height} {interlaced}"
                    );
                }
            }
        }
    }
}
