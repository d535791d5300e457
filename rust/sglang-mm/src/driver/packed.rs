//! A request whose features make up one array: each is written where it belongs there, so
//! none is copied. Headers tell how long each will be.
//!
//! Invariant: what comes out, and the first error, do not depend on the number of threads.

use super::{DriverError, MmInput, check, decoded, guarded, place, prompt, resolve};
use crate::{
    common::{
        Size, content_hash::content_hash_u64, decode::dimensions_with, fetch::FetchPolicy,
        memory::filled_in_windows,
    },
    pipeline::{FamilyError, Geometry, PackedFamily, PositionOutput},
};

/// The answer to a request, features in one array.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// The expanded prompt.
    pub input_ids: Vec<i32>,
    /// Features of all items, one item after the other.
    pub features: Vec<f32>,
    /// How each item lies in the prompt.
    pub geometries: Vec<Geometry>,
    /// Content hash of each item's encoded bytes.
    pub hashes: Vec<u64>,
    /// First and last token of each item.
    pub offsets: Vec<(u32, u32)>,
    /// Positions of the expanded prompt.
    pub positions: PositionOutput,
}

/// As [`process_with`](super::process_with), with all features in one array.
///
/// # Errors
///
/// As [`process_with`](super::process_with). An item whose size is refused is not decoded.
pub fn process_packed<E: Into<FamilyError>>(
    family: &dyn PackedFamily,
    input: MmInput<'_>,
    policy: &FetchPolicy,
    tokenize: impl FnOnce(&str) -> Result<Vec<i32>, E>,
) -> Result<Packed, DriverError> {
    check(&input)?;
    let files = resolve(&input.images, policy)?;
    let mut lens = Vec::with_capacity(files.len());
    let mut refused = None;
    for (item, file) in files.iter().enumerate() {
        match guarded(item, || feature_len(family, item, file)) {
            Ok(len) => lens.push(len),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    // Those before the refused one may be refused for more than their size.
    let written = filled_in_windows(&lens, DriverError::TooLarge, |item, room| {
        guarded(item, || {
            let file = &files[item];
            let hash = content_hash_u64(file);
            let media = decoded(family, item, file)?;
            let (feature, geometry) = family
                .write_feature(&media, room)
                .map_err(|source| DriverError::Process { item, source })?;
            Ok((feature, (geometry, hash)))
        })
    });
    let (features, items) = written?;
    if let Some(error) = refused {
        return Err(error);
    }
    let (geometries, hashes): (Vec<Geometry>, Vec<u64>) = items.into_iter().unzip();
    let ids = prompt(input.input_ids, input.text, tokenize)?;
    let placed = place(family, &ids, &geometries)?;
    Ok(Packed {
        input_ids: placed.input_ids,
        features,
        geometries,
        hashes,
        offsets: placed.offsets,
        positions: placed.positions,
    })
}

/// Elements of an item's feature, as its headers tell.
fn feature_len(family: &dyn PackedFamily, item: usize, file: &[u8]) -> Result<usize, DriverError> {
    let (height, width) = dimensions_with(file, &family.decode_options())
        .map_err(|source| DriverError::Decode { item, source })?;
    family
        .feature_len(Size { height, width })
        .map_err(|source| DriverError::Process { item, source })
}
