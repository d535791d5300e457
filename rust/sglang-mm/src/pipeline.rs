//! What passes between the request loop and a model family, and what a family must answer.
//!
//! A family turns one decoded picture into tensors, says where each picture goes in the
//! prompt, and gives the positions of the expanded prompt. Fetching, decoding, hashing,
//! threads and order are the business of [`driver`](crate::driver).
//!
//! Invariant: a family never sees the request loop, and the loop knows no family.

use std::{error::Error, mem::MaybeUninit, ops::Range};

use crate::common::{Size, decode::DecodeOptions};

/// The elements of a tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit integers.
    I64(Vec<i64>),
    /// The bits of `bfloat16` numbers; `NumPy` sees `uint16`.
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

    /// Whether there is no element.
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

/// Tensors under the names that the model knows them by.
pub type NamedTensors = Vec<(String, Tensor)>;

/// One piece of media as a family receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodedMedia {
    /// A still picture.
    Image {
        /// Height, width, channel; `height * width * 3` bytes.
        rgb: Vec<u8>,
        /// Rows.
        height: usize,
        /// Pixels in a row.
        width: usize,
    },
}

/// What decides how many tokens an item takes, and where they stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Geometry {
    /// Patches along time, height and width.
    Grid([u32; 3]),
}

/// What a family makes of one item.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessedItem {
    /// The model's main input.
    pub feature: Tensor,
    /// What else the model wants to know.
    pub aux: NamedTensors,
    /// How the item lies in the prompt.
    pub geometry: Geometry,
}

/// The tokens that stand for one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenPattern {
    /// `n` copies of one token.
    Repeat {
        /// The token.
        id: i32,
        /// How many.
        n: usize,
    },
    /// These tokens.
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

    /// Whether no token stands for the item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A stretch of the expanded prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Tokens of the prompt as it came, by index.
    Text(Range<usize>),
    /// An item in place of one token of the prompt.
    Media {
        /// Index of the item in the request.
        item: usize,
        /// What takes the token's place.
        pattern: TokenPattern,
    },
}

/// How a prompt expands: its stretches in order, covering every token once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenLayout {
    /// The stretches.
    pub segments: Vec<Segment>,
}

/// What a family takes besides images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Moving pictures.
    pub video: bool,
    /// Sound.
    pub audio: bool,
}

/// Positions of the tokens of an expanded prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PositionOutput {
    /// Each token's index: nothing to send.
    Rope1D,
    /// Three positions a token.
    MRope {
        /// Time, height and width rows, each as long as the prompt.
        positions: Vec<i64>,
        /// What to add to an index after the prompt to get its position.
        delta: i64,
    },
}

/// Why a family refused: its own error type, behind the words for the client.
pub type FamilyError = Box<dyn Error + Send + Sync>;

/// A model family's part in processing a request.
pub trait MmFamilyProcessor: Send + Sync {
    /// What the family takes besides images.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// How the family wants its pictures decoded.
    fn decode_options(&self) -> DecodeOptions {
        DecodeOptions::default()
    }

    /// The tensors of one item. Called for several items at once.
    ///
    /// # Errors
    ///
    /// When the item cannot be processed by the family's rules.
    fn process_item(&self, media: &DecodedMedia) -> Result<ProcessedItem, FamilyError>;

    /// Where the items go among the tokens `ids`; one geometry per item, in request order.
    ///
    /// # Errors
    ///
    /// When prompt and items do not fit each other.
    fn layout(&self, ids: &[i32], geometries: &[Geometry]) -> Result<TokenLayout, FamilyError>;

    /// Positions of an expanded prompt of `input_len` tokens, where item `i` takes the
    /// tokens from `offsets[i].0` to `offsets[i].1`, the last one included.
    ///
    /// # Errors
    ///
    /// When offsets and geometries contradict each other.
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

/// A family that knows the length of a picture's feature before the picture is decoded,
/// so that the features of a whole request are written into one array.
pub trait PackedFamily: MmFamilyProcessor {
    /// Elements of the feature of a picture of `size`.
    ///
    /// # Errors
    ///
    /// When the family's rules refuse the size.
    fn feature_len(&self, size: Size) -> Result<usize, FamilyError>;

    /// Writes the feature of `media` to `room`, which has [`Self::feature_len`] elements,
    /// and gives all of it back. Called for several items at once.
    ///
    /// # Errors
    ///
    /// As [`MmFamilyProcessor::process_item`].
    fn write_feature<'r>(
        &self,
        media: &DecodedMedia,
        room: &'r mut [MaybeUninit<f32>],
    ) -> Result<(&'r mut [f32], Geometry), FamilyError>;
}
