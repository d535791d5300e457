//! Media preprocessing for multimodal models, byte for byte equal to Pillow.
//!
//! Feature `python` adds the extension module `_multimodal`, and feature `parallel` adds a
//! thread pool. The features are independent, and the output never depends on them.
//!
//! Invariant: without features this crate does not depend on Python and starts no thread.

pub mod common;
pub mod driver;
pub mod dsv41;
pub mod inkling;
pub mod pipeline;
#[cfg(feature = "python")]
mod python;
pub mod qwen_vl;
pub mod registry;
