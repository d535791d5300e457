//! Code shared by all model families: decoding, resizing, patches, fetching, hashes, threads.

pub mod base64;
pub mod bf16;
pub mod content_hash;
pub mod decode;
pub(crate) mod excerpt;
pub mod fetch;
mod isa;
pub(crate) mod memory;
pub mod panics;
pub mod par;
pub mod patches;
pub mod rescale;
pub mod resize;
mod size;
pub mod token_layout;
pub mod transforms;

pub use size::Size;
