//! Family `inkling`: an image is cut into rows of square bf16 patches.
//!
//! The image may first be rescaled with Pillow's Lanczos filter (`common::rescale`). It is
//! placed at the top left of a grid of patches. The rest of the grid is padding: a raw sample
//! of -1, normalised like any other sample. The values of a patch are in height, width,
//! channel (HWC) order.
//!
//! Invariant: the resized image is never stored as a whole. Each resized row is looked up in
//! the value table and written directly to the patches. Every output value is written once.

mod values;

use crate::common::{
    Size,
    content_hash::content_hash_u64,
    decode::{DecodeError, DecodeOptions, decode_rgb_with},
    memory::{OutOfMemory, empty, filled},
    par,
    patches::Interleaved,
    rescale::{RescaleError, check_fraction, scaled_dims},
    resize::{Filter, PassOrder, Resample, ResizeError, Resizing},
};

/// An image could not be cut into patches.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InklingError {
    /// The patch size is 0.
    #[error("patch_size must be greater than zero")]
    PatchSize,
    /// The buffer does not have the length of an image of the stated size.
    #[error("an RGB image {size} does not have {got} bytes")]
    Length {
        /// The stated size.
        size: Size,
        /// Length of the buffer in bytes.
        got: usize,
    },
    /// The file could not be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The rescale fraction is invalid or gives an invalid size.
    #[error(transparent)]
    Rescale(#[from] RescaleError),
    /// The resize failed.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// The memory for the patches could not be allocated.
    #[error("not enough memory for an image {size} in patches of {patch_size}")]
    TooLarge {
        /// Size of the image.
        size: Size,
        /// Height and width of a patch.
        patch_size: usize,
    },
    /// An image of a batch failed. If several fail, this is the first of them in the batch.
    #[error("{error} (image {index} of the batch, counted from 0)")]
    InBatch {
        /// Index of the image.
        index: usize,
        /// The cause.
        #[source]
        error: Box<Self>,
    },
}

/// The options of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Height and width of a patch in pixels.
    pub patch_size: usize,
    /// The factor by which the longer side is scaled before patches are cut.
    pub rescale_frac: Option<f64>,
    /// The maximum length to which the longer side may grow, in pixels.
    pub rescale_cap: Option<i64>,
    /// The Pillow version whose order of resize passes a rescale follows.
    pub pass_order: PassOrder,
    /// How files are decoded.
    pub decode: DecodeOptions,
}

impl Options {
    /// The checks that need no file.
    fn check(self) -> Result<(), InklingError> {
        check_patch_size(self.patch_size)?;
        Ok(check_fraction(self.rescale_frac)?)
    }
}

/// The patches of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patches {
    /// Size of the image after rescaling; it determines the grid.
    pub size: Size,
    /// bf16 bits: patch by patch, within a patch row by row, three values per pixel.
    pub bits: Vec<u16>,
}

/// The number of patch rows and columns for an image.
///
/// A width that is a multiple of the patch size gets one more column, which is padding. The
/// models are trained with this formula, which is not a ceiling.
///
/// # Errors
///
/// If the patch size is 0 or the number of columns overflows.
pub fn patch_grid(size: Size, patch_size: usize) -> Result<(usize, usize), InklingError> {
    check_patch_size(patch_size)?;
    let columns = (size.width / patch_size).checked_add(1);
    let columns = columns.ok_or(InklingError::TooLarge { size, patch_size })?;
    Ok((size.height.div_ceil(patch_size), columns))
}

/// Cuts the RGB image `rgb` of size `size` into patches, without rescaling.
///
/// An image of height 0 has no patches. An image of width 0 has patches of padding.
///
/// # Errors
///
/// If the patch size is 0, the buffer does not match `size`, or memory is insufficient.
pub fn patchify(rgb: &[u8], size: Size, patch_size: usize) -> Result<Vec<u16>, InklingError> {
    // The size does not change, so the pass order has no effect.
    patches(rgb, size, size, patch_size, PassOrder::default())
}

/// Rescales the RGB image `rgb` of size `size` and cuts it into patches.
///
/// # Errors
///
/// As [`patchify`], and if the rescale fraction is invalid or gives an invalid size.
pub fn rescale_patchify(rgb: &[u8], size: Size, options: Options) -> Result<Patches, InklingError> {
    let to = scaled_dims(size, options.rescale_frac, options.rescale_cap)?;
    let bits = patches(rgb, size, to, options.patch_size, options.pass_order)?;
    Ok(Patches { size: to, bits })
}

/// Decodes a file, rescales the image, and cuts it into patches.
///
/// # Errors
///
/// As [`rescale_patchify`], and if the file cannot be decoded.
pub fn decode_patchify(file: &[u8], options: Options) -> Result<Patches, InklingError> {
    options.check()?;
    let image = decode_rgb_with(file, &options.decode)?;
    rescale_patchify(&image.pixels, image.size(), options)
}

/// Calls [`decode_patchify`] for every file and returns the results in order.
///
/// # Errors
///
/// If files fail: the error of the first of them in the batch.
pub fn decode_patchify_batch<F>(files: &[F], options: Options) -> Result<Vec<Patches>, InklingError>
where
    F: AsRef<[u8]> + Sync,
{
    batch(files, options, |file| decode_patchify(file, options))
}

/// Like [`decode_patchify_batch`], with the content hash of each file.
///
/// # Errors
///
/// As [`decode_patchify_batch`].
pub fn preprocess_images<F>(
    files: &[F],
    options: Options,
) -> Result<Vec<(Patches, u64)>, InklingError>
where
    F: AsRef<[u8]> + Sync,
{
    batch(files, options, |file| {
        Ok((decode_patchify(file, options)?, content_hash_u64(file)))
    })
}

/// Processes the files in parallel; adds the index of the file to an error.
fn batch<F, R>(
    files: &[F],
    options: Options,
    one: impl Fn(&[u8]) -> Result<R, InklingError> + Send + Sync,
) -> Result<Vec<R>, InklingError>
where
    F: AsRef<[u8]> + Sync,
    R: Send,
{
    options.check()?;
    let numbered: Vec<_> = files.iter().enumerate().collect();
    par::try_map(&numbered, |&(index, file)| {
        one(file.as_ref()).map_err(|error| InklingError::InBatch {
            index,
            error: Box::new(error),
        })
    })
}

/// Resizes `rgb` from size `from` to size `to` and cuts it into patches.
fn patches(
    rgb: &[u8],
    from: Size,
    to: Size,
    patch_size: usize,
    pass_order: PassOrder,
) -> Result<Vec<u16>, InklingError> {
    let (rows, columns) = patch_grid(to, patch_size)?;
    if from.rgb_len() != Some(rgb.len()) {
        return Err(InklingError::Length {
            size: from,
            got: rgb.len(),
        });
    }
    let too_large = InklingError::TooLarge {
        size: to,
        patch_size,
    };
    let writer = Interleaved {
        table: &values::table(),
        padding: values::padding(),
        patch: patch_size,
        columns,
        left: 0,
    };
    let len = writer.len(rows).ok_or(too_large.clone())?;
    if from.is_empty() && from == to {
        // The image has no pixels: the result is padding only.
        let mut out = empty(len).map_err(|OutOfMemory| too_large)?;
        out.extend(writer.padding.iter().cycle().take(len));
        return Ok(out);
    }
    let resizing = Resizing {
        rgb,
        from,
        to,
        resample: Resample::Pil(Filter::Lanczos, pass_order),
    };
    filled(len, too_large, |out| {
        Ok(writer.fill(&resizing, 0, rows, out)?)
    })
}

fn check_patch_size(patch_size: usize) -> Result<(), InklingError> {
    if patch_size == 0 {
        return Err(InklingError::PatchSize);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
