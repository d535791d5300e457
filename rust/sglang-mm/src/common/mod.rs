//! What every model family shares: pixels, sizes, hashes and the thread seam.

pub mod base64;
pub mod content_hash;
pub mod decode;
mod isa;
mod memory;
pub mod par;
pub mod patches;
pub mod rescale;
pub mod resize;
mod size;
pub mod token_layout;

pub use size::Size;
