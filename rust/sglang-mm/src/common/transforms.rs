//! The general steps from pixels to patches, one function each: the start for a new family.
//!
//! Each step reads a whole image and creates another. A family with its own kernel writes patches
//! directly from resized rows ([`patches`](super::patches)) and must give the same values.
//!
//! Invariant: images are in the order height, width, channel (HWC). No step changes the order of
//! channels.

use super::{
    Size,
    memory::{OutOfMemory, empty},
};

/// The data does not match the arguments of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransformError {
    /// The buffer is not an image of the stated size.
    #[error("an image {size} of {channels} channels does not have {got} values")]
    Length {
        /// The stated size.
        size: Size,
        /// Values per pixel.
        channels: usize,
        /// Values received.
        got: usize,
    },
    /// A patch or a grid cell without pixels.
    #[error("a patch must have pixels, got a patch {0}")]
    EmptyPatch(Size),
    /// The image is not a whole number of patches.
    #[error("an image {size} cannot be cut into patches {patch}: pad it first")]
    NotDivisible {
        /// The size of the image.
        size: Size,
        /// The size of a patch.
        patch: Size,
    },
    /// The system refused memory for the result.
    #[error("not enough memory for an image {0}")]
    TooLarge(Size),
}

/// Normalises one channel of a pixel: `(value * (1 / 255) - mean) / std`, in f32.
///
/// It *multiplies* by the reciprocal: dividing by 255 gives another last bit for about half of
/// all values.
#[must_use]
pub fn normalized(value: f32, mean: f32, std: f32) -> f32 {
    (value * (1.0 / 255.0) - mean) / std
}

/// Appends `rgb` to `out`, each channel [`normalized`] with its own mean and deviation.
///
/// # Errors
///
/// A buffer that does not match `size`, or too little memory.
pub fn normalize_rgb_f32(
    rgb: &[u8],
    size: Size,
    mean: &[f32; 3],
    std: &[f32; 3],
    out: &mut Vec<f32>,
) -> Result<(), TransformError> {
    check_length(rgb.len(), size, 3)?;
    out.try_reserve(rgb.len())
        .map_err(|_| TransformError::TooLarge(size))?;
    out.extend(rgb.chunks_exact(3).flat_map(|pixel| {
        std::array::from_fn::<_, 3, _>(|channel| {
            normalized(f32::from(pixel[channel]), mean[channel], std[channel])
        })
    }));
    Ok(())
}

/// The number of rows and columns of patches that cover an image. The last ones may be partial.
///
/// # Errors
///
/// A patch without pixels.
pub fn patch_grid(size: Size, patch: Size) -> Result<(usize, usize), TransformError> {
    if patch.is_empty() {
        return Err(TransformError::EmptyPatch(patch));
    }
    Ok((
        size.height.div_ceil(patch.height),
        size.width.div_ceil(patch.width),
    ))
}

/// Places the image `data` at the top left of the smallest canvas of whole cells. Returns the canvas
/// and its size.
///
/// The rest is `pad_value`, which has one value per channel.
///
/// # Errors
///
/// A buffer that does not match `size`, a cell without pixels, or too little memory.
pub fn pad_to_grid(
    data: &[f32],
    size: Size,
    cell: Size,
    pad_value: &[f32],
) -> Result<(Vec<f32>, Size), TransformError> {
    let channels = pad_value.len();
    check_length(data.len(), size, channels)?;
    let (rows, columns) = patch_grid(size, cell)?;
    let too_large = TransformError::TooLarge(size);
    let canvas = Size {
        height: rows.checked_mul(cell.height).ok_or(too_large)?,
        width: columns.checked_mul(cell.width).ok_or(too_large)?,
    };
    let len = values(canvas, channels).ok_or(too_large)?;
    let mut out: Vec<f32> = empty(len).map_err(|OutOfMemory| too_large)?;
    out.extend(pad_value.iter().copied().cycle().take(len));
    let (row, canvas_row) = (size.width * channels, canvas.width * channels);
    // Chunks of length 0 would panic. With `max`, rows without values give no chunks.
    let rows = out.chunks_exact_mut(canvas_row.max(1));
    for (canvas_row, image_row) in rows.zip(data.chunks_exact(row.max(1))) {
        canvas_row[..row].copy_from_slice(image_row);
    }
    Ok((out, canvas))
}

/// The patches of an image, row by row. Each patch is an image in HWC order.
///
/// # Errors
///
/// A buffer that does not match `size`, an image that is not a whole number of patches, or too
/// little memory.
pub fn extract_patches_hwc(
    data: &[f32],
    size: Size,
    channels: usize,
    patch: Size,
) -> Result<Vec<f32>, TransformError> {
    check_length(data.len(), size, channels)?;
    let (rows, columns) = patch_grid(size, patch)?;
    if !size.height.is_multiple_of(patch.height) || !size.width.is_multiple_of(patch.width) {
        return Err(TransformError::NotDivisible { size, patch });
    }
    if data.is_empty() {
        // An image without columns may have any number of rows, and the loop must not visit them.
        return Ok(vec![]);
    }
    let mut out = empty(data.len()).map_err(|OutOfMemory| TransformError::TooLarge(size))?;
    let run = patch.width * channels;
    for row in 0..rows {
        for column in 0..columns {
            for y in 0..patch.height {
                let start = ((row * patch.height + y) * columns + column) * run;
                out.extend_from_slice(&data[start..][..run]);
            }
        }
    }
    Ok(out)
}

fn check_length(got: usize, size: Size, channels: usize) -> Result<(), TransformError> {
    if values(size, channels) == Some(got) {
        return Ok(());
    }
    Err(TransformError::Length {
        size,
        channels,
        got,
    })
}

fn values(size: Size, channels: usize) -> Option<usize> {
    size.height.checked_mul(size.width)?.checked_mul(channels)
}

#[cfg(test)]
mod tests {
    use super::{
        Size, TransformError, extract_patches_hwc, normalize_rgb_f32, normalized, pad_to_grid,
        patch_grid,
    };

    const fn size(height: usize, width: usize) -> Size {
        Size { height, width }
    }

    /// Values that equal their own index.
    fn numbered(size: Size, channels: usize) -> Vec<f32> {
        (0..size.height * size.width * channels)
            .map(|at| at as f32)
            .collect()
    }

    /// Pins the number of byte values for which the two formulas differ.
    #[test]
    fn multiplication_differs_from_division_for_126_values() {
        let differ = (0..=255_u8)
            .filter(|&value| {
                let value = f32::from(value);
                normalized(value, 0.0, 1.0).to_bits() != (value / 255.0).to_bits()
            })
            .count();
        assert_eq!(126, differ);
    }

    #[test]
    fn each_channel_has_its_own_mean_and_deviation() {
        let mut out = vec![7.0];
        let (mean, std) = ([0.0, 0.5, 1.0], [1.0, 0.5, 0.25]);
        normalize_rgb_f32(&[0, 0, 0, 255, 255, 255], size(1, 2), &mean, &std, &mut out).unwrap();
        assert_eq!(vec![7.0, 0.0, -1.0, -4.0, 1.0, 1.0, 0.0], out);
    }

    #[test]
    fn padding_fills_below_and_to_the_right() {
        let image = numbered(size(2, 1), 2);
        let (padded, canvas) = pad_to_grid(&image, size(2, 1), size(3, 2), &[8.0, 9.0]).unwrap();
        assert_eq!(size(3, 2), canvas);
        #[rustfmt::skip]
        assert_eq!(vec![
            0.0, 1.0,  8.0, 9.0,
            2.0, 3.0,  8.0, 9.0,
            8.0, 9.0,  8.0, 9.0,
        ], padded);
    }

    #[test]
    fn whole_cells_need_no_padding() {
        let image = numbered(size(4, 6), 3);
        let padded = pad_to_grid(&image, size(4, 6), size(2, 3), &[0.0; 3]).unwrap();
        assert_eq!((image, size(4, 6)), padded);
    }

    /// Compares every value with its place by the definition.
    #[test]
    fn patches_go_row_by_row() {
        let (image, patch, channels) = (size(6, 8), size(3, 2), 2);
        let patches =
            extract_patches_hwc(&numbered(image, channels), image, channels, patch).unwrap();
        let mut expected = vec![];
        for (row, column) in (0..2).flat_map(|row| (0..4).map(move |column| (row, column))) {
            for (y, x) in (0..3).flat_map(|y| (0..2).map(move |x| (y, x))) {
                for channel in 0..channels {
                    let source = ((row * 3 + y) * 8 + column * 2 + x) * channels + channel;
                    expected.push(source as f32);
                }
            }
        }
        assert_eq!(expected, patches);
    }

    /// Rows without pixels cost no memory, so there may be very many. The loop must not visit each.
    #[test]
    fn an_image_without_columns_has_no_patches() {
        let patches = extract_patches_hwc(&[], size(usize::MAX, 0), 3, size(1, 1));
        assert_eq!(Ok(vec![]), patches);
    }

    #[test]
    fn grids_round_up() {
        #[rustfmt::skip]
        let cases = [
            ("whole patches",  size(4, 6), size(2, 3), (2, 2)),
            ("partial patches", size(5, 7), size(2, 3), (3, 3)),
            ("one patch",      size(1, 1), size(9, 9), (1, 1)),
            ("no pixels",      size(0, 5), size(2, 3), (0, 2)),
        ];
        for (name, image, patch, expected) in cases {
            assert_eq!(Ok(expected), patch_grid(image, patch), "{name}");
        }
    }

    #[test]
    fn mismatched_arguments_are_refused() {
        let image = [0.0; 12];
        let huge = size(usize::MAX, usize::MAX);
        let length = |size, channels, got| TransformError::Length {
            size,
            channels,
            got,
        };
        #[rustfmt::skip]
        let cases: [(&str, Result<(), TransformError>, TransformError); 8] = [
            ("short image",     normalize_rgb_f32(&[0; 11], size(2, 2), &[0.0; 3], &[1.0; 3], &mut vec![]),
                length(size(2, 2), 3, 11)),
            ("huge image",      normalize_rgb_f32(&[], huge, &[0.0; 3], &[1.0; 3], &mut vec![]), length(huge, 3, 0)),
            ("short to pad",    pad_to_grid(&image, size(2, 3), size(1, 1), &[0.0]).map(drop),
                length(size(2, 3), 1, 12)),
            ("huge canvas",     pad_to_grid(&image, size(2, 2), huge, &[0.0; 3]).map(drop),
                TransformError::TooLarge(size(2, 2))),
            ("empty cell",      pad_to_grid(&image, size(2, 2), size(0, 1), &[0.0; 3]).map(drop),
                TransformError::EmptyPatch(size(0, 1))),
            ("empty patch",     extract_patches_hwc(&image, size(2, 2), 3, size(1, 0)).map(drop),
                TransformError::EmptyPatch(size(1, 0))),
            ("partial patches", extract_patches_hwc(&image, size(2, 2), 3, size(1, 3)).map(drop),
                TransformError::NotDivisible { size: size(2, 2), patch: size(1, 3) }),
            ("partial, no data", extract_patches_hwc(&[], size(usize::MAX, 0), 3, size(2, 1)).map(drop),
                TransformError::NotDivisible { size: size(usize::MAX, 0), patch: size(2, 1) }),
        ];
        for (name, got, expected) in cases {
            assert_eq!(Err(expected), got, "{name}");
        }
    }
}
