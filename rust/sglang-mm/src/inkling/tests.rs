//! Tests the grid, the padding, the order of values in a patch, and the errors.

use super::{
    InklingError, Options, Patches, decode_patchify, decode_patchify_batch, patch_grid, patchify,
    preprocess_images, rescale_patchify, values,
};
use crate::common::{
    Size,
    decode::{DecodeLimits, DecodeOptions},
    rescale::RescaleError,
    resize::{Filter, PassOrder, Resample, resize_rgb},
};

const fn size(height: usize, width: usize) -> Size {
    Size { height, width }
}

/// Image bytes that depend on their position, so that a misplaced byte is detected.
fn image(size: Size) -> Vec<u8> {
    (0..size.height * size.width * 3)
        .map(|at| (at * 7 + at / 256) as u8)
        .collect()
}

const NO_RESCALE: Options = Options {
    patch_size: 3,
    rescale_frac: None,
    rescale_cap: None,
    pass_order: PassOrder::Pillow13,
    decode: DecodeOptions {
        limits: DecodeLimits::PILLOW,
        exif_transpose: false,
    },
};

#[test]
fn a_width_of_whole_patches_gets_one_more_column() {
    #[rustfmt::skip]
    let cases = [
        ("width is one patch",        size(40, 40), (1, 2)),
        ("width is one pixel less",   size(40, 39), (1, 1)),
        ("heights are rounded up",    size(41, 41), (2, 2)),
        ("one pixel",                 size(1, 1),   (1, 1)),
        ("height 0",                  size(0, 7),   (0, 1)),
        ("width 0",                   size(41, 0),  (2, 1)),
    ];
    for (name, image, expected) in cases {
        assert_eq!(Ok(expected), patch_grid(image, 40), "{name}");
    }
}

/// Compares with a slow reference: each output value is computed on its own.
#[test]
fn each_value_equals_the_reference() {
    let (table, padding) = (values::table().0, values::padding());
    for image_size in [
        size(5, 7),
        size(3, 3),
        size(6, 6),
        size(1, 8),
        size(4, 0),
        size(0, 4),
    ] {
        for patch_size in [1, 2, 3, 8] {
            let rgb = image(image_size);
            let (rows, columns) = patch_grid(image_size, patch_size).unwrap();
            let mut expected = vec![];
            for at in 0..rows * columns * patch_size * patch_size * 3 {
                let (rest, channel) = (at / 3, at % 3);
                let (rest, x) = (rest / patch_size, rest % patch_size);
                let (patch, y) = (rest / patch_size, rest % patch_size);
                let y = patch / columns * patch_size + y;
                let x = patch % columns * patch_size + x;
                expected.push(if y < image_size.height && x < image_size.width {
                    let value = rgb[(y * image_size.width + x) * 3 + channel];
                    table[channel][usize::from(value)]
                } else {
                    padding[channel]
                });
            }
            assert_eq!(
                Ok(expected),
                patchify(&rgb, image_size, patch_size),
                "{image_size}, patches of {patch_size}"
            );
        }
    }
}

#[test]
fn a_rescaled_image_is_resized_and_then_cut() {
    #[rustfmt::skip]
    let cases = [
        ("enlarged",                                      size(7, 9),     2.0, size(14, 18)),
        ("very high, vertical pass first since 12.2",     size(1001, 10), 0.5, size(501, 5)),
        ("portrait, vertical pass first since 13",        size(401, 100), 0.5, size(201, 50)),
    ];
    let in_any_order = |case| PassOrder::ALL.map(|order| (case, order));
    for ((name, from, fraction, to), pass_order) in cases.into_iter().flat_map(in_any_order) {
        let lanczos = Resample::Pil(Filter::Lanczos, pass_order);
        let resized = resize_rgb(&image(from), from, to, lanczos).unwrap();
        let options = Options {
            rescale_frac: Some(fraction),
            pass_order,
            ..NO_RESCALE
        };
        let expected = Patches {
            size: to,
            bits: patchify(&resized, to, 3).unwrap(),
        };
        let got = rescale_patchify(&image(from), from, options);
        assert_eq!(Ok(expected), got, "{name}, {pass_order}");
    }
}

fn scaled_by(rescale_frac: f64) -> Options {
    Options {
        rescale_frac: Some(rescale_frac),
        ..NO_RESCALE
    }
}

#[test]
fn options_are_checked_before_the_file() {
    let no_patch_size = Options {
        patch_size: 0,
        ..NO_RESCALE
    };
    #[rustfmt::skip]
    let cases = [
        ("patch size 0",      no_patch_size,   "patch_size must be greater than zero"),
        ("negative fraction", scaled_by(-2.0), "rescale fraction must be finite and positive, got -2"),
    ];
    for (name, options, expected) in cases {
        for error in [
            decode_patchify(b"text", options).unwrap_err(),
            preprocess_images(&[b"text"], options).unwrap_err(),
        ] {
            assert_eq!(expected, error.to_string(), "{name}");
        }
    }
}

#[test]
fn outputs_larger_than_memory_are_refused() {
    let rgb = image(size(2, 2));
    // The output length overflows, exceeds the address space, or cannot be allocated.
    for patch_size in [usize::MAX, 1 << 31, 1 << 30] {
        let refused = patchify(&rgb, size(2, 2), patch_size);
        assert!(
            matches!(refused, Err(InklingError::TooLarge { .. })),
            "{patch_size}"
        );
    }
    // The number of columns overflows.
    let endless = size(0, usize::MAX);
    assert_eq!(
        Err(InklingError::TooLarge {
            size: endless,
            patch_size: 1
        }),
        patchify(&[], endless, 1)
    );
}

#[test]
fn invalid_arguments_are_refused() {
    let rgb = image(size(2, 2));
    let nan = rescale_patchify(&rgb, size(2, 2), scaled_by(f64::NAN));
    assert!(matches!(
        nan,
        Err(InklingError::Rescale(RescaleError::Fraction(_)))
    ));
    let empty = rescale_patchify(&[], size(0, 2), scaled_by(2.0)).map(|patches| patches.bits);
    #[rustfmt::skip]
    let cases = [
        ("patch size 0", patchify(&rgb, size(2, 2), 0), "patch_size must be greater than zero"),
        ("short buffer", patchify(&rgb[1..], size(2, 2), 1), "an RGB image 2 high, 2 wide does not have 11 bytes"),
        ("empty image, enlarged", empty, "input size must be positive, got 0 high, 2 wide"),
    ];
    for (name, got, expected) in cases {
        assert_eq!(expected, got.unwrap_err().to_string(), "{name}");
    }
}

/// The error of a batch is that of the first failing image, and names its index.
#[test]
fn a_batch_fails_with_the_error_of_its_first_failing_image() {
    let files: [&[u8]; 3] = [b"", b"GIF89a", b"text"];
    let InklingError::InBatch { index, error } = preprocess_images(&files, NO_RESCALE).unwrap_err()
    else {
        panic!("the error of a batch has no index");
    };
    assert_eq!(0, index);
    assert!(matches!(*error, InklingError::Decode(_)));
    let message = decode_patchify_batch(&files[1..], NO_RESCALE)
        .unwrap_err()
        .to_string();
    assert!(message.starts_with("image decode"), "{message}");
    assert!(
        message.ends_with("(image 0 of the batch, counted from 0)"),
        "{message}"
    );
    assert_eq!(Ok(vec![]), preprocess_images::<&[u8]>(&[], NO_RESCALE));
}
