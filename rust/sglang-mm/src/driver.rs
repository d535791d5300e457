//! Processes one request: fetches the sources, hashes and decodes them, calls the family for
//! each image, expands the prompt, and computes its positions.
//!
//! Sources are fetched in order on the calling thread, never on the thread pool. A caller with
//! few threads can fetch the sources itself and pass the bytes, which are borrowed. Then the
//! items are processed in parallel. A request without a prompt fetches nothing.
//!
//! Invariant: results are in the order of the request. If several items fail, the driver
//! returns the error of the failed item that comes first in the request. A panic while an item
//! is processed is an error of its request.

mod packed;

use std::borrow::Cow;

use crate::{
    common::{
        content_hash::content_hash_u64,
        decode::{DecodeError, RgbImage, decode_rgb_with},
        fetch::{ByteBudget, FetchError, FetchPolicy},
        panics::{Panicked, caught},
        par,
        token_layout::{ExpandedPrompt, LayoutError, apply_layout},
    },
    pipeline::{
        DecodedMedia, FamilyError, Geometry, MmFamilyProcessor, NamedTensors, PositionOutput,
        ProcessedItem, Tensor,
    },
};

pub use packed::{Packed, process_packed};

/// The maximum number of items in a request.
pub const MAX_ITEMS_PER_REQUEST: usize = 64;

/// The maximum number of bytes of encoded media in a request, fetched or passed: 1.25 GiB.
pub const MAX_REQUEST_BYTES: u64 = 5 << 28;

/// Where an item's encoded bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource<'a> {
    /// A URL, a path or base64, as [`FetchPolicy::fetch`] accepts it.
    String(Cow<'a, str>),
    /// The encoded bytes themselves.
    Bytes(Cow<'a, [u8]>),
}

/// A request. Borrowed fields are not copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MmInput<'a> {
    /// The prompt as text; used only if `input_ids` is absent or empty.
    pub text: Option<Cow<'a, str>>,
    /// The prompt as token ids.
    pub input_ids: Option<Cow<'a, [i32]>>,
    /// The items, in the order of their placeholders.
    pub images: Vec<ImageSource<'a>>,
}

/// One processed item.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputItem {
    /// The model's main input.
    pub feature: Tensor,
    /// Further inputs of the model.
    pub aux: NamedTensors,
    /// Content hash of the encoded bytes.
    pub hash: u64,
}

/// A processed request.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Token ids of the expanded prompt.
    pub input_ids: Vec<i32>,
    /// One item per source, in order.
    pub items: Vec<OutputItem>,
    /// Index of the first and of the last token of each item.
    pub offsets: Vec<(u32, u32)>,
    /// Positions of the expanded prompt.
    pub positions: PositionOutput,
}

/// A request could not be processed. The driver has no fallback.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The request has no images. The driver does not process text-only requests.
    #[error("multimodal request without image sources")]
    NoImages,
    /// The request has more than [`MAX_ITEMS_PER_REQUEST`] items.
    #[error("multimodal request exceeds {MAX_ITEMS_PER_REQUEST} media items: it has {0}")]
    TooManyItems(usize),
    /// The request has neither text nor token ids.
    #[error("multimodal request without text or input_ids")]
    NoPrompt,
    /// A source could not be fetched.
    #[error("media item {item}: {source}")]
    Fetch {
        /// Index of the item.
        item: usize,
        /// The cause.
        source: FetchError,
    },
    /// The bytes could not be decoded as an image.
    #[error("media item {item}: {source}")]
    Decode {
        /// Index of the item.
        item: usize,
        /// The cause.
        source: DecodeError,
    },
    /// The family could not process the image.
    #[error("media item {item}: {source}")]
    Process {
        /// Index of the item.
        item: usize,
        /// The cause.
        source: FamilyError,
    },
    /// Code that processed the item panicked, which is a bug.
    #[error("media item {item}: {source}")]
    Panicked {
        /// Index of the item.
        item: usize,
        /// The panic.
        source: Panicked,
    },
    /// The allocation of the one array for the features of all items failed.
    #[error("multimodal request: not enough memory for the features of all items")]
    TooLarge,
    /// The tokenizer failed.
    #[error("multimodal request: the text could not be tokenized: {0}")]
    Tokenize(#[source] FamilyError),
    /// The family found that prompt and items do not match.
    #[error(transparent)]
    Layout(FamilyError),
    /// The layout that the family returned does not cover this prompt.
    #[error(transparent)]
    Expand(#[from] LayoutError),
    /// The family found that offsets and items do not match.
    #[error(transparent)]
    Positions(FamilyError),
}

/// Processes `input` by the rules of `family`, without restrictions on what is fetched.
/// `tokenize` is called only if the prompt is text.
///
/// # Errors
///
/// The first error found. The order of checks is: the request as a whole, its sources in
/// order, its items in order, its prompt.
pub fn process<E: Into<FamilyError>>(
    family: &dyn MmFamilyProcessor,
    input: MmInput<'_>,
    tokenize: impl FnOnce(&str) -> Result<Vec<i32>, E>,
) -> Result<Output, DriverError> {
    process_with(family, input, &FetchPolicy::open(), tokenize)
}

/// Like [`process`], but fetches only what `policy` allows.
///
/// # Errors
///
/// As [`process`].
pub fn process_with<E: Into<FamilyError>>(
    family: &dyn MmFamilyProcessor,
    input: MmInput<'_>,
    policy: &FetchPolicy,
    tokenize: impl FnOnce(&str) -> Result<Vec<i32>, E>,
) -> Result<Output, DriverError> {
    check(&input)?;
    let files = fetch_sources(&input.images, policy)?;
    let indices: Vec<usize> = (0..files.len()).collect();
    let items = par::try_map(&indices, |&index| {
        process_item(family, index, &files[index])
    })?;
    let (geometries, items): (Vec<Geometry>, Vec<OutputItem>) = items
        .into_iter()
        .map(|(item, hash)| {
            let (feature, aux) = (item.feature, item.aux);
            (item.geometry, OutputItem { feature, aux, hash })
        })
        .unzip();
    let ids = prompt_ids(input.input_ids, input.text, tokenize)?;
    let prompt = expand_prompt(family, &ids, &geometries)?;
    Ok(Output {
        input_ids: prompt.input_ids,
        items,
        offsets: prompt.offsets,
        positions: prompt.positions,
    })
}

/// The checks that need no fetched bytes.
fn check(input: &MmInput<'_>) -> Result<(), DriverError> {
    if input.images.is_empty() {
        return Err(DriverError::NoImages);
    }
    if input.images.len() > MAX_ITEMS_PER_REQUEST {
        return Err(DriverError::TooManyItems(input.images.len()));
    }
    let has_ids = input.input_ids.as_ref().is_some_and(|ids| !ids.is_empty());
    if !has_ids && input.text.is_none() {
        return Err(DriverError::NoPrompt);
    }
    Ok(())
}

/// The encoded bytes of every source. One byte budget covers all of them.
fn fetch_sources<'a>(
    sources: &'a [ImageSource<'_>],
    policy: &FetchPolicy,
) -> Result<Vec<Cow<'a, [u8]>>, DriverError> {
    let budget = ByteBudget::new(MAX_REQUEST_BYTES);
    let bytes = |(item, source): (usize, &'a ImageSource<'_>)| {
        let bytes = match source {
            ImageSource::String(text) => policy.fetch(text, &budget).map(Cow::Owned),
            ImageSource::Bytes(bytes) => budget
                .charge_existing(bytes.len() as u64, "image bytes")
                .map(|()| Cow::Borrowed(bytes.as_ref())),
        };
        bytes.map_err(|source| DriverError::Fetch { item, source })
    };
    sources.iter().enumerate().map(bytes).collect()
}

/// All the work on one item: hash, decode, process. A panic in it becomes an error.
fn process_item(
    family: &dyn MmFamilyProcessor,
    item: usize,
    file: &[u8],
) -> Result<(ProcessedItem, u64), DriverError> {
    catch_panics(item, || {
        let hash = content_hash_u64(file);
        let media = decode(family, item, file)?;
        let processed = family.process_item(&media);
        let processed = processed.map_err(|source| DriverError::Process { item, source })?;
        Ok((processed, hash))
    })
}

/// Runs `work` and returns a panic in it as [`DriverError::Panicked`].
fn catch_panics<R>(
    item: usize,
    work: impl FnOnce() -> Result<R, DriverError>,
) -> Result<R, DriverError> {
    caught(work).unwrap_or_else(|source| Err(DriverError::Panicked { item, source }))
}

fn decode(
    family: &dyn MmFamilyProcessor,
    item: usize,
    file: &[u8],
) -> Result<DecodedMedia, DriverError> {
    let RgbImage {
        height,
        width,
        pixels,
    } = decode_rgb_with(file, &family.decode_options())
        .map_err(|source| DriverError::Decode { item, source })?;
    Ok(DecodedMedia::Image {
        rgb: pixels,
        height,
        width,
    })
}

/// The token ids of the prompt: `input_ids` if there are any, else those of `text`.
fn prompt_ids<'a, E: Into<FamilyError>>(
    input_ids: Option<Cow<'a, [i32]>>,
    text: Option<Cow<'_, str>>,
    tokenize: impl FnOnce(&str) -> Result<Vec<i32>, E>,
) -> Result<Cow<'a, [i32]>, DriverError> {
    match (input_ids, text) {
        (Some(ids), _) if !ids.is_empty() => Ok(ids),
        (_, Some(text)) => tokenize(&text)
            .map(Cow::Owned)
            .map_err(|error| DriverError::Tokenize(error.into())),
        _ => Err(DriverError::NoPrompt),
    }
}

/// An expanded prompt, with the places of its items and its positions.
struct PositionedPrompt {
    input_ids: Vec<i32>,
    offsets: Vec<(u32, u32)>,
    positions: PositionOutput,
}

/// Expands the placeholders of the prompt and computes its positions.
fn expand_prompt(
    family: &dyn MmFamilyProcessor,
    ids: &[i32],
    geometries: &[Geometry],
) -> Result<PositionedPrompt, DriverError> {
    let layout = family
        .layout(ids, geometries)
        .map_err(DriverError::Layout)?;
    let ExpandedPrompt { input_ids, offsets } = apply_layout(ids, &layout, geometries.len())?;
    let positions = family
        .positions(input_ids.len(), &offsets, geometries)
        .map_err(DriverError::Positions)?;
    Ok(PositionedPrompt {
        input_ids,
        offsets,
        positions,
    })
}

#[cfg(test)]
mod tests;
