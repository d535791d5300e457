//! Processes a request into one array with the features of all items. Each item's feature
//! is written directly to its part of the array, so no feature is copied. The image headers
//! give the length of each part.
//!
//! Invariant: the results and the returned error do not depend on the number of threads.

use std::borrow::Cow;

use super::{
    DriverError, MmInput, catch_panics, check, decode, expand_prompt, fetch_sources, prompt_ids,
};
use crate::{
    common::{
        Size, content_hash::content_hash_u64, decode::dimensions_with, fetch::FetchPolicy,
        memory::filled_in_windows,
    },
    pipeline::{FamilyError, Geometry, PackedFamily, PositionOutput},
};

/// A processed request with the features of all items in one array.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// Token ids of the expanded prompt.
    pub input_ids: Vec<i32>,
    /// Features of all items, one item after the other.
    pub features: Vec<f32>,
    /// The geometry of each item.
    pub geometries: Vec<Geometry>,
    /// Content hash of each item's encoded bytes.
    pub hashes: Vec<u64>,
    /// Index of the first and of the last token of each item.
    pub offsets: Vec<(u32, u32)>,
    /// Positions of the expanded prompt.
    pub positions: PositionOutput,
}

/// Like [`process_with`](super::process_with), but writes all features to one array.
///
/// # Errors
///
/// As [`process_with`](super::process_with). An item is not decoded if the family refuses
/// the size in its header.
pub fn process_packed<E: Into<FamilyError>>(
    family: &dyn PackedFamily,
    input: MmInput<'_>,
    policy: &FetchPolicy,
    tokenize: impl FnOnce(&str) -> Result<Vec<i32>, E>,
) -> Result<Packed, DriverError> {
    check(&input)?;
    let files = fetch_sources(&input.images, policy)?;
    let (lens, refused) = feature_lens(family, &files);
    // The items before the refused one are processed first: if one of them fails, its
    // error is the first in order.
    let written = filled_in_windows(&lens, DriverError::TooLarge, |item, window| {
        catch_panics(item, || {
            let file = &files[item];
            let hash = content_hash_u64(file);
            let media = decode(family, item, file)?;
            let (feature, geometry) = family
                .write_feature(&media, window)
                .map_err(|source| DriverError::Process { item, source })?;
            Ok((feature, (geometry, hash)))
        })
    });
    let (features, items) = written?;
    if let Some(error) = refused {
        return Err(error);
    }
    let (geometries, hashes): (Vec<Geometry>, Vec<u64>) = items.into_iter().unzip();
    let ids = prompt_ids(input.input_ids, input.text, tokenize)?;
    let prompt = expand_prompt(family, &ids, &geometries)?;
    Ok(Packed {
        input_ids: prompt.input_ids,
        features,
        geometries,
        hashes,
        offsets: prompt.offsets,
        positions: prompt.positions,
    })
}

/// The feature lengths of all items before the first refused item, and the error of that item. The
/// error is `None` if no item is refused.
fn feature_lens(
    family: &dyn PackedFamily,
    files: &[Cow<'_, [u8]>],
) -> (Vec<usize>, Option<DriverError>) {
    let mut lens = Vec::with_capacity(files.len());
    for (item, file) in files.iter().enumerate() {
        match catch_panics(item, || feature_len(family, item, file)) {
            Ok(len) => lens.push(len),
            Err(error) => return (lens, Some(error)),
        }
    }
    (lens, None)
}

/// Number of elements of an item's feature, computed from the size in the file's header.
fn feature_len(family: &dyn PackedFamily, item: usize, file: &[u8]) -> Result<usize, DriverError> {
    let (height, width) = dimensions_with(file, &family.decode_options())
        .map_err(|source| DriverError::Decode { item, source })?;
    family
        .feature_len(Size { height, width })
        .map_err(|source| DriverError::Process { item, source })
}
