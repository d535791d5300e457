//! The normalised bf16 value of each of the 256 sample values, per channel.
//!
//! Invariant: the table holds the exact results of the normalisation, so samples are looked
//! up instead of computed.

use crate::common::{bf16::bf16_bits, patches::ValueTable, transforms::normalized};

/// Mean and standard deviation of CLIP.
const MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];

/// The raw sample value of padding.
const RAW_PADDING: f32 = -1.0;

/// The bf16 bits of each sample value of red, green and blue.
pub(super) fn table() -> ValueTable<u16> {
    ValueTable(std::array::from_fn(|channel| {
        std::array::from_fn(|value| bits(value as f32, channel))
    }))
}

/// The bf16 bits of red, green and blue of padding.
pub(super) fn padding() -> [u16; 3] {
    std::array::from_fn(|channel| bits(RAW_PADDING, channel))
}

fn bits(raw: f32, channel: usize) -> u16 {
    bf16_bits(normalized(raw, MEAN[channel], STD[channel]))
}

#[cfg(test)]
mod tests {
    use super::{padding, table};

    /// The values of the published model code.
    #[test]
    fn values_equal_the_published_values() {
        #[rustfmt::skip]
        let cases = [
            (0,   [0xbfe5, 0xbfe0, 0xbfbd]),
            (1,   [0xbfe4, 0xbfde, 0xbfbc]),
            (127, [0x3d7d, 0x3e1e, 0x3ea7]),
            (128, [0x3d9c, 0x3e2d, 0x3eae]),
            (255, [0x3ff7, 0x4005, 0x4009]),
        ];
        for (value, expected) in cases {
            assert_eq!(expected, table().0.map(|channel| channel[value]), "{value}");
        }
        assert_eq!([0xbfe7, 0xbfe2, 0xbfbf], padding());
    }
}
