//! The value that each 8-bit sample gets, per colour: a table, because both image
//! processors of Hugging Face compute nothing but a function of sample and colour.
//!
//! Invariant: the tables are theirs to the last bit, and differ where theirs differ.

use super::{Backend, QwenVlSpec};
use crate::common::patches::ValueTable;

/// For red, green and blue: the value of each sample.
pub(super) fn value_table(spec: &QwenVlSpec) -> ValueTable<f32> {
    ValueTable(std::array::from_fn(|colour| {
        let (mean, std) = (spec.image_mean[colour], spec.image_std[colour]);
        std::array::from_fn(|sample| value(spec.resample, sample as f32, mean, std))
    }))
}

/// Pillow's processor scales to 0..1 and then normalises; torchvision's folds the scale
/// into mean and deviation, which rounds elsewhere.
fn value(backend: Backend, sample: f32, mean: f32, std: f32) -> f32 {
    match backend {
        Backend::Pil => (sample / 255.0 - mean) / std,
        Backend::AtenU8 => (sample - mean * 255.0) / (std * 255.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::spec, Backend, value_table};

    const CLIP: ([f32; 3], [f32; 3]) = (
        [0.481_454_66, 0.457_827_5, 0.408_210_73],
        [0.268_629_54, 0.261_302_6, 0.275_777_1],
    );
    const HALF: ([f32; 3], [f32; 3]) = ([0.5; 3], [0.5; 3]);

    /// The counts are those of the two processors' own tables.
    #[test]
    fn backends_differ_where_the_originals_do() {
        for (name, (image_mean, image_std), expected) in [
            ("CLIP", CLIP, [167, 216, 154]),
            ("one half", HALF, [128; 3]),
        ] {
            let [pil, aten] = [Backend::Pil, Backend::AtenU8].map(|resample| {
                value_table(&super::QwenVlSpec {
                    image_mean,
                    image_std,
                    resample,
                    ..spec()
                })
                .0
            });
            let different = [0, 1, 2].map(|colour| {
                let pairs = pil[colour].iter().zip(&aten[colour]);
                pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count()
            });
            assert_eq!(expected, different, "{name}");
        }
    }

    #[test]
    fn ends_of_the_range() {
        let (image_mean, image_std) = HALF;
        for resample in [Backend::Pil, Backend::AtenU8] {
            let table = value_table(&super::QwenVlSpec {
                image_mean,
                image_std,
                resample,
                ..spec()
            })
            .0;
            for colour in table {
                let ends = [colour[0], colour[255]].map(f32::to_bits);
                assert_eq!([-1.0_f32, 1.0].map(f32::to_bits), ends, "{resample:?}");
            }
        }
    }
}
