//! Processors that turn a batch of encoded files into patches and do not handle prompts.
//!
//! Invariant: names are unique in a registry.

use std::{collections::BTreeMap, error::Error};

use crate::{
    common::{decode::DecodeOptions, resize::PassOrder},
    inkling::{self, Options, Patches},
};

/// Height and width after rescaling, bf16 bits of the patches, content hash of the file.
pub type PreprocessedImage = (usize, usize, Vec<u16>, u64);

/// The error of a processor; each family has its own error type.
pub type ProcessorError = Box<dyn Error + Send + Sync>;

/// A family that turns encoded images into patches.
pub trait ImageProcessorSpec: Send + Sync {
    /// The name under which the registry finds it.
    fn name(&self) -> &'static str;

    /// Turns every file into patches, in order. The sizes returned are those after rescaling.
    ///
    /// # Errors
    ///
    /// If the request is invalid or a file cannot be processed. If several files fail, the
    /// error is that of the first of them in the batch.
    fn preprocess_batch(
        &self,
        files: &[&[u8]],
        patch_size: usize,
        rescale_frac: Option<f64>,
        rescale_cap: Option<i64>,
    ) -> Result<Vec<PreprocessedImage>, ProcessorError>;
}

/// Processors by name.
#[derive(Default)]
pub struct ProcessorRegistry {
    processors: BTreeMap<&'static str, Box<dyn ImageProcessorSpec>>,
}

impl ProcessorRegistry {
    /// A registry without processors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a processor. It replaces an earlier one of the same name.
    pub fn register(&mut self, processor: Box<dyn ImageProcessorSpec>) {
        self.processors.insert(processor.name(), processor);
    }

    /// The processor of this name, if there is one.
    #[must_use]
    pub fn lookup(&self, name: &str) -> Option<&dyn ImageProcessorSpec> {
        self.processors.get(name).map(AsRef::as_ref)
    }

    /// The names of all processors, sorted.
    #[must_use]
    pub fn list_names(&self) -> Vec<&'static str> {
        self.processors.keys().copied().collect()
    }
}

/// The processors of this crate.
///
/// `dsv41` is not among them, because its planner is not in this crate: an image's target
/// size depends on five settings of a checkpoint. [`ImageProcessorSpec`] has no parameters
/// for them, and they have no defaults. The planner is in Python, in
/// `sglang.srt.multimodal`, beside the processor that takes these settings.
#[must_use]
pub fn default_registry() -> ProcessorRegistry {
    let mut registry = ProcessorRegistry::new();
    registry.register(Box::new(InklingProcessor::default()));
    registry
}

/// [`inkling`] as a processor. Its fields are the options that a request does not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InklingProcessor {
    /// The Pillow version whose order of resize passes a rescale follows.
    pub pass_order: PassOrder,
    /// How files are decoded.
    pub decode: DecodeOptions,
}

impl ImageProcessorSpec for InklingProcessor {
    fn name(&self) -> &'static str {
        "inkling"
    }

    fn preprocess_batch(
        &self,
        files: &[&[u8]],
        patch_size: usize,
        rescale_frac: Option<f64>,
        rescale_cap: Option<i64>,
    ) -> Result<Vec<PreprocessedImage>, ProcessorError> {
        let options = Options {
            patch_size,
            rescale_frac,
            rescale_cap,
            pass_order: self.pass_order,
            decode: self.decode,
        };
        let images = inkling::preprocess_images(files, options)?;
        let flat =
            |(Patches { size, bits }, hash): (Patches, u64)| (size.height, size.width, bits, hash);
        Ok(images.into_iter().map(flat).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ImageProcessorSpec, PreprocessedImage, ProcessorError, ProcessorRegistry, default_registry,
    };

    /// A processor that returns each file's length as its hash.
    struct Lengths(&'static str, usize);

    impl ImageProcessorSpec for Lengths {
        fn name(&self) -> &'static str {
            self.0
        }

        fn preprocess_batch(
            &self,
            files: &[&[u8]],
            _: usize,
            _: Option<f64>,
            _: Option<i64>,
        ) -> Result<Vec<PreprocessedImage>, ProcessorError> {
            let one = |file: &&[u8]| (self.1, 0, vec![], file.len() as u64);
            Ok(files.iter().map(one).collect())
        }
    }

    #[test]
    fn registering_a_name_again_replaces_the_processor() {
        let mut registry = ProcessorRegistry::new();
        assert!(registry.list_names().is_empty());
        registry.register(Box::new(Lengths("b", 1)));
        registry.register(Box::new(Lengths("a", 2)));
        registry.register(Box::new(Lengths("b", 3)));
        assert_eq!(vec!["a", "b"], registry.list_names());
        let found = registry.lookup("b").unwrap();
        let images = found.preprocess_batch(&[b"xyz"], 1, None, None).unwrap();
        assert_eq!(vec![(3, 0, vec![], 3)], images);
        assert!(registry.lookup("c").is_none());
    }

    #[test]
    fn inkling_is_registered() {
        let registry = default_registry();
        assert_eq!(vec!["inkling"], registry.list_names());
        let refused = registry
            .lookup("inkling")
            .unwrap()
            .preprocess_batch(&[], 0, None, None);
        assert_eq!(
            "patch_size must be greater than zero",
            refused.unwrap_err().to_string()
        );
    }
}
