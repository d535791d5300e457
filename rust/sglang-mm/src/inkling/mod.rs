//! Family `inkling`: an image as rows of square patches, in bf16.
//!
//! An image may first be enlarged with Pillow's Lanczos (`common::rescale`). It lies at
//! the top left of a grid of patches; what it does not cover has the value of a raw pixel
//! of -1, normalised like any other. A patch is height, width, channel (HWC).
//!
//! Invariant: the resized image is never held. Rows go through the table of values
//! straight into patches, and the output is written once.

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

/// An image cannot become patches.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InklingError {
    /// Patches without pixels.
    #[error("patch_size must be greater than zero")]
    PatchSize,
    /// The buffer is not an image of the stated size.
    #[error("an RGB image {size} does not have {got} bytes")]
    Length {
        /// The stated size.
        size: Size,
        /// Bytes received.
        got: usize,
    },
    /// The file is no image that we read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The fraction leads to no usable size.
    #[error(transparent)]
    Rescale(#[from] RescaleError),
    /// The image cannot have that size.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// Memory for the patches is not to be had.
    #[error("an image {size} in patches of {patch_size} needs more memory than there is")]
    TooLarge {
        /// Size of the image.
        size: Size,
        /// Side of a patch.
        patch_size: usize,
    },
    /// One image of several is wrong: the first in order.
    #[error("{error} (image {index} of the batch, counted from 0)")]
    InBatch {
        /// Which image.
        index: usize,
        /// What is wrong with it.
        #[source]
        error: Box<Self>,
    },
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Side of a patch in pixels.
    pub patch_size: usize,
    /// Scale the longer side by this before patches are cut.
    pub rescale_frac: Option<f64>,
    /// Do not let the longer side grow beyond this.
    pub rescale_cap: Option<i64>,
    /// Whose order of passes a rescale follows.
    pub pass_order: PassOrder,
    /// How files are decoded.
    pub decode: DecodeOptions,
}

impl Options {
    /// What can be refused before a file is looked at.
    fn check(self) -> Result<(), InklingError> {
        check_patch_size(self.patch_size)?;
        Ok(check_fraction(self.rescale_frac)?)
    }
}

/// An image as patches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patches {
    /// Size of the image after it was rescaled; the grid follows from it.
    pub size: Size,
    /// bf16 bits: patch by patch, in each row by row, three values a pixel.
    pub bits: Vec<u16>,
}

/// Rows and columns of patches that hold an image.
///
/// A width of whole patches gets one more column, all padding: the formula is not a
/// ceiling, and models are trained with it.
///
/// # Errors
///
/// A patch size of 0, or more columns than can be counted.
pub fn patch_grid(size: Size, patch_size: usize) -> Result<(usize, usize), InklingError> {
    check_patch_size(patch_size)?;
    let columns = (size.width / patch_size).checked_add(1);
    let columns = columns.ok_or(InklingError::TooLarge { size, patch_size })?;
    Ok((size.height.div_ceil(patch_size), columns))
}

/// The RGB image `rgb` of size `size` as patches, as it is.
///
/// An image without rows has no patches; one without columns has patches of padding.
///
/// # Errors
///
/// A patch size of 0, a buffer that does not fit `size`, or too little memory.
pub fn patchify(rgb: &[u8], size: Size, patch_size: usize) -> Result<Vec<u16>, InklingError> {
    // Nothing is resized, so no order shows.
    patches(rgb, size, size, patch_size, PassOrder::default())
}

/// The RGB image `rgb` of size `size` as patches, rescaled before.
///
/// # Errors
///
/// As [`patchify`], and a fraction that leads to no usable size.
pub fn rescale_patchify(rgb: &[u8], size: Size, options: Options) -> Result<Patches, InklingError> {
    let to = scaled_dims(size, options.rescale_frac, options.rescale_cap)?;
    let bits = patches(rgb, size, to, options.patch_size, options.pass_order)?;
    Ok(Patches { size: to, bits })
}

/// The image in an encoded file as patches.
///
/// # Errors
///
/// As [`rescale_patchify`], and whatever the decoder refuses.
pub fn decode_patchify(file: &[u8], options: Options) -> Result<Patches, InklingError> {
    options.check()?;
    let image = decode_rgb_with(file, &options.decode)?;
    rescale_patchify(&image.pixels, image.size(), options)
}

/// [`decode_patchify`] of every file, in order.
///
/// # Errors
///
/// What is wrong with the first file, in order, that fails.
pub fn decode_patchify_batch<F>(files: &[F], options: Options) -> Result<Vec<Patches>, InklingError>
where
    F: AsRef<[u8]> + Sync,
{
    batch(files, options, |file| decode_patchify(file, options))
}

/// [`decode_patchify`] of every file, in order, each with its content hash.
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

/// `rgb`, of size `from`, as patches of its picture of size `to`.
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
        // There is nothing to resize.
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
