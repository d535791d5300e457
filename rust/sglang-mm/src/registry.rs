//! Looks up model families by name.

mod pipelines;
mod processors;

pub use pipelines::{PipelineSpec, PipelineSpecError, build_pipeline, pipeline_from_spec};
pub use processors::{
    ImageProcessorSpec, InklingProcessor, PreprocessedImage, ProcessorError, ProcessorRegistry,
    default_registry,
};
