//! Families that turn a batch of encoded files into patches, and know nothing of prompts.
//!
//! Invariant: a name stands for one processor.

use std::{collections::BTreeMap, error::Error};

use crate::{
    common::{decode::DecodeOptions, resize::PassOrder},
    inkling::{self, Options, Patches},
};

/// Height, width, bf16 bits of the patches, content hash of the file.
pub type PreprocessedImage = (usize, usize, Vec<u16>, u64);

/// What a processor says went wrong; each family has its own errors.
pub type ProcessorError = Box<dyn Error + Send + Sync>;

/// A family that takes encoded images to patches.
pub trait ImageProcessorSpec: Send + Sync {
    /// The name that callers know it by.
    fn name(&self) -> &'static str;

    /// Every file as patches, in order; sizes are those after rescaling.
    ///
    /// # Errors
    ///
    /// What is wrong with the request, or with the first file, in order, that fails.
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
    /// One without processors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a processor, in the place of one of the same name.
    pub fn register(&mut self, processor: Box<dyn ImageProcessorSpec>) {
        self.processors.insert(processor.name(), processor);
    }

    /// The processor of this name.
    #[must_use]
    pub fn lookup(&self, name: &str) -> Option<&dyn ImageProcessorSpec> {
        self.processors.get(name).map(AsRef::as_ref)
    }

    /// Every name, sorted.
    #[must_use]
    pub fn list_names(&self) -> Vec<&'static str> {
        self.processors.keys().copied().collect()
    }
}

/// The processors of this crate.
///
/// `dsv41` is not among them. Here it has no planner: what its images become depends on
/// five settings of a checkpoint, for which [`ImageProcessorSpec`] has no room and which
/// have no defaults. The planner is in Python, `sglang.srt.multimodal`, beside the
/// processor that is made with these settings.
#[must_use]
pub fn default_registry() -> ProcessorRegistry {
    let mut registry = ProcessorRegistry::new();
    registry.register(Box::new(InklingProcessor::default()));
    registry
}

/// [`inkling`] as a processor: what a request asks for comes with it, the rest is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InklingProcessor {
    /// Whose order of passes a rescale follows.
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

    /// Gives each file its length for a hash.
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
    fn a_name_stands_for_one_processor() {
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
