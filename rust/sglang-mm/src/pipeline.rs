//! The interface between the driver and a model family: the traits that a family implements, and
//! the types that they exchange.
//!
//! A family turns one decoded image into tensors, determines where each image goes in the
//! prompt, and computes the positions of the expanded prompt. The [`driver`](crate::driver) does
//! the rest: fetching, decoding, hashing, threads, order.
//!
//! Invariant: families do not depend on the driver's code, and the driver does not name any
//! family.

use std::{error::Error, mem::MaybeUninit, ops::Range};

use crate::common::{Size, decode::DecodeOptions};

/// The elements of a tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit integers.
    I64(Vec<i64>),
    /// The bits of `bfloat16` numbers; `uint16` in `NumPy`.
    Bf16(Vec<u16>),
}

impl TensorData {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::I64(data) => data.len(),
            Self::Bf16(data) => data.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An array: the product of `shape` is `data.len()`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// The elements, row-major.
    pub data: TensorData,
}

/// Tensors, each with the name of the model's argument.
pub type NamedTensors = Vec<(String, Tensor)>;

/// A decoded media item, the input of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodedMedia {
    /// A still image.
    Image {
        /// Pixels in height, width, channel order; `height * width * 3` bytes.
        rgb: Vec<u8>,
        /// Rows.
        height: usize,
        /// Pixels in a row.
        width: usize,
    },
}

/// The size of an item, from which its number of tokens and their positions follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Geometry {
    /// Patches along time, height and width.
    Grid([u32; 3]),
}

/// The result of processing one item.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessedItem {
    /// The model's main input.
    pub feature: Tensor,
    /// Further inputs of the model.
    pub aux: NamedTensors,
    /// Determines the item's tokens and positions.
    pub geometry: Geometry,
}

/// The tokens that represent one item in the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenPattern {
    /// `n` copies of one token.
    Repeat {
        /// The token id.
        id: i32,
        /// Number of copies.
        n: usize,
    },
    /// A list of token ids.
    Explicit(Vec<i32>),
}

impl TokenPattern {
    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Repeat { n, .. } => *n,
            Self::Explicit(ids) => ids.len(),
        }
    }

    /// Whether the item has no tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A part of the expanded prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A range of token indices of the original prompt.
    Text(Range<usize>),
    /// An item, which replaces one token of the original prompt.
    Media {
        /// Index of the item in the request.
        item: usize,
        /// The tokens that replace it.
        pattern: TokenPattern,
    },
}

/// How a prompt expands: a list of segments that covers every token of the original prompt
/// once, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenLayout {
    /// The segments, in order.
    pub segments: Vec<Segment>,
}

/// The kinds of media that a family accepts besides images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Videos.
    pub video: bool,
    /// Audio.
    pub audio: bool,
}

/// Positions of the tokens of an expanded prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PositionOutput {
    /// The position of a token is its index, so no array is needed.
    Rope1D,
    /// Three positions per token.
    MRope {
        /// Three rows, for time, height and width; each is as long as the expanded prompt.
        positions: Vec<i64>,
        /// Added to the index of a generated token to get its position.
        delta: i64,
    },
}

/// Any error type of a family. Its message is shown to the client.
pub type FamilyError = Box<dyn Error + Send + Sync>;

/// The steps of processing a request that depend on the model family.
pub trait MmFamilyProcessor: Send + Sync {
    /// The kinds of media that the family accepts besides images.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// The options for decoding this family's images.
    fn decode_options(&self) -> DecodeOptions {
        DecodeOptions::default()
    }

    /// Computes the tensors of one item. Several threads may call it at the same time, for
    /// different items.
    ///
    /// # Errors
    ///
    /// If the family's rules do not allow the item.
    fn process_item(&self, media: &DecodedMedia) -> Result<ProcessedItem, FamilyError>;

    /// Determines where the items go in the prompt `ids`. There is one geometry per item, in
    /// request order.
    ///
    /// # Errors
    ///
    /// If prompt and items do not match, for example in number.
    fn layout(&self, ids: &[i32], geometries: &[Geometry]) -> Result<TokenLayout, FamilyError>;

    /// Computes the positions of an expanded prompt of `input_len` tokens. Item `i` has the
    /// tokens from `offsets[i].0` to `offsets[i].1`, inclusive.
    ///
    /// # Errors
    ///
    /// If offsets and geometries do not match.
    fn positions(
        &self,
        input_len: usize,
        offsets: &[(u32, u32)],
        geometries: &[Geometry],
    ) -> Result<PositionOutput, FamilyError> {
        let _ = (input_len, offsets, geometries);
        Ok(PositionOutput::Rope1D)
    }
}

/// A family that can compute the length of an image's feature from the image's size, before
/// the image is decoded. The features of a whole request are then written into one array.
pub trait PackedFamily: MmFamilyProcessor {
    /// Number of elements of the feature of an image of `size`.
    ///
    /// # Errors
    ///
    /// If the family's rules do not allow the size.
    fn feature_len(&self, size: Size) -> Result<usize, FamilyError>;

    /// Writes the feature of `media` to `out`, which has [`Self::feature_len`] elements, and
    /// returns `out` as initialised memory. Several threads may call it at the same time, for
    /// different items.
    ///
    /// # Errors
    ///
    /// As [`MmFamilyProcessor::process_item`].
    fn write_feature<'r>(
        &self,
        media: &DecodedMedia,
        out: &'r mut [MaybeUninit<f32>],
    ) -> Result<(&'r mut [f32], Geometry), FamilyError>;
}
