//! One request, from its sources to what the scheduler takes: fetch, hash, decode, hand to
//! the family, expand the prompt, number it.
//!
//! Sources are resolved in order on the caller, never on the pool: whoever has few
//! threads fetches himself and passes bytes, which are borrowed. Only then do the items
//! fan out. Nothing is fetched for a request that has no prompt.
//!
//! Invariant: everything comes out in the order of the request, and so does the first
//! error. A panic in an item's work is an error of its request.

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

/// Most items in a request.
pub const MAX_ITEMS_PER_REQUEST: usize = 64;

/// Most bytes of encoded media in a request, whatever way they came: 1.25 GiB.
pub const MAX_REQUEST_BYTES: u64 = 5 << 28;

/// Where an item's encoded bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource<'a> {
    /// A URL, a path or base64, as [`FetchPolicy::fetch`] reads it.
    String(Cow<'a, str>),
    /// Here.
    Bytes(Cow<'a, [u8]>),
}

/// A request. What can be borrowed is not copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MmInput<'a> {
    /// The prompt; read when there are no `input_ids`.
    pub text: Option<Cow<'a, str>>,
    /// The prompt as tokens.
    pub input_ids: Option<Cow<'a, [i32]>>,
    /// The items, in the order of their placeholders.
    pub images: Vec<ImageSource<'a>>,
}

/// One item of the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputItem {
    /// The model's main input.
    pub feature: Tensor,
    /// What else the model wants to know.
    pub aux: NamedTensors,
    /// Content hash of the encoded bytes.
    pub hash: u64,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The expanded prompt.
    pub input_ids: Vec<i32>,
    /// One per source, in order.
    pub items: Vec<OutputItem>,
    /// First and last token of each item.
    pub offsets: Vec<(u32, u32)>,
    /// Positions of the expanded prompt.
    pub positions: PositionOutput,
}

/// Why a request was refused. There is no other way to process it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// Text requests are not ours.
    #[error("multimodal request without image sources")]
    NoImages,
    /// More items than one request may have.
    #[error("multimodal request exceeds {MAX_ITEMS_PER_REQUEST} media items: it has {0}")]
    TooManyItems(usize),
    /// No prompt in either form.
    #[error("multimodal request without text or input_ids")]
    NoPrompt,
    /// A source has no bytes for us.
    #[error("media item {item}: {source}")]
    Fetch {
        /// Index of the item.
        item: usize,
        /// What was wrong.
        source: FetchError,
    },
    /// The bytes are no picture.
    #[error("media item {item}: {source}")]
    Decode {
        /// Index of the item.
        item: usize,
        /// What was wrong.
        source: DecodeError,
    },
    /// The family refused the picture.
    #[error("media item {item}: {source}")]
    Process {
        /// Index of the item.
        item: usize,
        /// What was wrong.
        source: FamilyError,
    },
    /// A bug showed itself.
    #[error("media item {item}: {source}")]
    Panicked {
        /// Index of the item.
        item: usize,
        /// The panic.
        source: Panicked,
    },
    /// The features of a request are one array, and there is no memory for it.
    #[error("multimodal request: the features of all items need more memory than there is")]
    TooLarge,
    /// The text is no prompt.
    #[error("multimodal request: the text could not be tokenized: {0}")]
    Tokenize(#[source] FamilyError),
    /// Prompt and items do not fit each other, says the family.
    #[error(transparent)]
    Layout(FamilyError),
    /// The family's layout is not one of this prompt.
    #[error(transparent)]
    Expand(#[from] LayoutError),
    /// Offsets and items contradict each other.
    #[error(transparent)]
    Positions(FamilyError),
}

/// Processes `input` by the rules of `family`, fetching from wherever it says; `tokenize`
/// is asked for a prompt that comes as text.
///
/// # Errors
///
/// The first thing that is wrong with the request: the request as a whole, its sources
/// in order, its items in order, its prompt.
pub fn process<E: Into<FamilyError>>(
    family: &dyn MmFamilyProcessor,
    input: MmInput<'_>,
    tokenize: impl FnOnce(&str) -> Result<Vec<i32>, E>,
) -> Result<Output, DriverError> {
    process_with(family, input, &FetchPolicy::open(), tokenize)
}

/// As [`process`], fetching only what `policy` allows.
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
    let files = resolve(&input.images, policy)?;
    let indices: Vec<usize> = (0..files.len()).collect();
    let items = par::try_map(&indices, |&index| item(family, index, &files[index]))?;
    let (geometries, items): (Vec<Geometry>, Vec<OutputItem>) = items
        .into_iter()
        .map(|(item, hash)| {
            let (feature, aux) = (item.feature, item.aux);
            (item.geometry, OutputItem { feature, aux, hash })
        })
        .unzip();
    let ids = prompt(input.input_ids, input.text, tokenize)?;
    let placed = place(family, &ids, &geometries)?;
    Ok(Output {
        input_ids: placed.input_ids,
        items,
        offsets: placed.offsets,
        positions: placed.positions,
    })
}

/// What can be said before anything is fetched.
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

/// The encoded bytes of every source, under one budget.
fn resolve<'a>(
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

/// One item's work, whole: what may panic is in here.
fn item(
    family: &dyn MmFamilyProcessor,
    item: usize,
    file: &[u8],
) -> Result<(ProcessedItem, u64), DriverError> {
    guarded(item, || {
        let hash = content_hash_u64(file);
        let media = decoded(family, item, file)?;
        let processed = family.process_item(&media);
        let processed = processed.map_err(|source| DriverError::Process { item, source })?;
        Ok((processed, hash))
    })
}

fn guarded<R>(
    item: usize,
    work: impl FnOnce() -> Result<R, DriverError>,
) -> Result<R, DriverError> {
    caught(work).unwrap_or_else(|source| Err(DriverError::Panicked { item, source }))
}

fn decoded(
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

/// The prompt as tokens.
fn prompt<'a, E: Into<FamilyError>>(
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

/// A prompt with its items in their places.
struct Placed {
    input_ids: Vec<i32>,
    offsets: Vec<(u32, u32)>,
    positions: PositionOutput,
}

/// Puts items and prompt together.
fn place(
    family: &dyn MmFamilyProcessor,
    ids: &[i32],
    geometries: &[Geometry],
) -> Result<Placed, DriverError> {
    let layout = family
        .layout(ids, geometries)
        .map_err(DriverError::Layout)?;
    let ExpandedPrompt { input_ids, offsets } = apply_layout(ids, &layout, geometries.len())?;
    let positions = family
        .positions(input_ids.len(), &offsets, geometries)
        .map_err(DriverError::Positions)?;
    Ok(Placed {
        input_ids,
        offsets,
        positions,
    })
}

#[cfg(test)]
mod tests;
