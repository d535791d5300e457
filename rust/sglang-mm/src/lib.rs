//! Media preprocessing for multimodal models, exact to Pillow's bytes.
//!
//! Feature `python` adds the extension module `_multimodal`, feature `parallel` a
//! thread pool. They are independent, and the bytes that come out never depend on
//! either.
//!
//! Invariant: without features this crate knows neither Python nor threads.

pub mod common;
pub mod driver;
pub mod dsv41;
pub mod inkling;
pub mod pipeline;
#[cfg(feature = "python")]
mod python;
pub mod qwen_vl;
pub mod registry;
