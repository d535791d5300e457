//! Which model families there are, by name.

mod processors;

pub use processors::{
    ImageProcessorSpec, InklingProcessor, PreprocessedImage, ProcessorError, ProcessorRegistry,
    default_registry,
};
