//! The normalised value of each 8-bit sample, per channel. A table suffices, because in both
//! image processors of Hugging Face the value depends only on sample and channel.
//!
//! Invariant: the values equal those of the selected processor to the last bit. The two
//! processors round differently, so their tables differ.

use super::{Backend, QwenVlSpec};
use crate::common::patches::ValueTable;

/// The value of each sample, for red, green and blue.
pub(super) fn value_table(spec: &QwenVlSpec) -> ValueTable<f32> {
    ValueTable(std::array::from_fn(|channel| {
        let (mean, std) = (spec.image_mean[channel], spec.image_std[channel]);
        std::array::from_fn(|sample| value(spec.resample, sample as f32, mean, std))
    }))
}

/// The Pillow processor scales to 0..1 and then normalises. The torchvision processor scales
/// mean and standard deviation instead, which rounds differently.
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

    /// For each channel, the number of samples whose values differ between the two backends. The
    /// expected numbers were counted in the tables of the two Hugging Face processors.
    #[test]
    fn backends_differ_in_the_expected_number_of_values() {
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
            let different = [0, 1, 2].map(|channel| {
                let pairs = pil[channel].iter().zip(&aten[channel]);
                pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count()
            });
            assert_eq!(expected, different, "{name}");
        }
    }

    #[test]
    fn the_smallest_and_largest_samples_become_minus_one_and_one() {
        let (image_mean, image_std) = HALF;
        for resample in [Backend::Pil, Backend::AtenU8] {
            let table = value_table(&super::QwenVlSpec {
                image_mean,
                image_std,
                resample,
                ..spec()
            })
            .0;
            for channel in table {
                let ends = [channel[0], channel[255]].map(f32::to_bits);
                assert_eq!([-1.0_f32, 1.0].map(f32::to_bits), ends, "{resample:?}");
            }
        }
    }
}
