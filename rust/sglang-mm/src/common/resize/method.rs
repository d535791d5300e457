//! The resize methods that a caller can choose from: the weights and the order of passes of each.

use super::{
    axis::{Axis, Filter, Quantization},
    order::PassOrder,
};
use crate::common::{Size, excerpt::excerpt, memory::OutOfMemory};

/// A resize method. The variant names the library whose arithmetic it reproduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resample {
    /// Pillow's `Image.resize` of an RGB image.
    Pil(Filter, PassOrder),
    /// The antialiased bicubic that `ATen` (and so torchvision) runs on uint8 CPU tensors.
    /// Its horizontal pass always comes first.
    AtenU8,
}

impl Resample {
    /// The method called `pil_lanczos`, `pil_bicubic` or `aten_u8`.
    ///
    /// # Errors
    ///
    /// For any other name.
    pub fn named(name: &str, order: PassOrder) -> Result<Self, UnknownResample> {
        match name {
            "pil_lanczos" => Ok(Self::Pil(Filter::Lanczos, order)),
            "pil_bicubic" => Ok(Self::Pil(Filter::Bicubic, order)),
            "aten_u8" => Ok(Self::AtenU8),
            _ => Err(UnknownResample(excerpt(name))),
        }
    }

    pub(super) fn axis(self, from: usize, to: usize) -> Result<Axis, OutOfMemory> {
        match self {
            Self::Pil(filter, _) => Axis::new(filter, Quantization::Pillow, from, to),
            Self::AtenU8 => Axis::new(Filter::Bicubic, Quantization::Aten, from, to),
        }
    }

    pub(super) fn vertical_first(self, from: Size, to: Size) -> bool {
        match self {
            Self::Pil(_, order) => order.vertical_first(from, to),
            Self::AtenU8 => false,
        }
    }
}

/// No resize method has this name. Long names are shortened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown resample `{0}`: expected `pil_lanczos`, `pil_bicubic` or `aten_u8`")]
pub struct UnknownResample(pub String);
