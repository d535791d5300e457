//! Compares whole resizes with pinned bytes and with a plain implementation of the formulas.

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::{
    Canvas, Filter, Isa, PassOrder, Plan, Resample, ResizeError, Resizing, Size, resize_into,
    resize_rgb,
};

const HORIZONTAL: PassOrder = PassOrder::Horizontal;

/// Noise that is easy to generate in any language. Smooth images would hide rounding errors.
fn noise(size: Size) -> Vec<u8> {
    let mut bytes = Vec::new();
    for y in 0..size.height {
        for x in 0..size.width {
            for c in 0..3 {
                bytes.push((37 * y + 91 * x + 53 * c + 11 * ((x * y + c) % 17)) as u8);
            }
        }
    }
    bytes
}

fn size((height, width): (usize, usize)) -> Size {
    Size { height, width }
}

fn resized(from: Size, to: Size, resample: Resample) -> Vec<u8> {
    resize_rgb(&noise(from), from, to, resample).unwrap()
}

/// The first 16 hex digits of the SHA-256.
fn digest(bytes: &[u8]) -> String {
    let mut head = [0; 8];
    head.copy_from_slice(&Sha256::digest(bytes)[..8]);
    format!("{:016x}", u64::from_be_bytes(head))
}

/// Resizes with the vertical pass first, regardless of the rule for the order.
fn vertical_first(from: Size, to: Size, filter: Filter) -> Vec<u8> {
    let how = Resample::Pil(filter, HORIZONTAL);
    let intermediate = Size {
        height: to.height,
        ..from
    };
    resize_rgb(&resized(from, intermediate, how), intermediate, to, how).unwrap()
}

#[test]
fn noise_has_the_pinned_bytes() {
    assert_eq!(
        [0, 64, 128, 91, 155, 219, 182, 246, 54, 17, 81, 145],
        noise(size((6, 8)))[..12]
    );
}

#[test]
fn resizes_have_the_pinned_digests() {
    // Digests: bicubic, Lanczos (both horizontal first), bicubic vertical first, ATen.
    #[rustfmt::skip]
    let cases = [
        ((6, 8),     (4, 5),    ["6892fcc4e3226741", "4c96c7e1a1ef37e1", "10c55839861786a5", "6892fcc4e3226741"]),
        ((37, 53),   (74, 106), ["7a8c2be3a564ae97", "97ea8fa069a91f8b", "a85e016fc1bc05c7", "7a8c2be3a564ae97"]),
        ((200, 320), (90, 111), ["0f75b2d1de8c4afe", "ca81cd5f0f5a743d", "9c35667b3a5d83be", "ba1b8f240c2572e3"]),
        ((64, 64),   (64, 33),  ["5f99565415fc10fd", "32b31448ce5fbb04", "5f99565415fc10fd", "7daa4b36e1928743"]),
        ((64, 64),   (33, 64),  ["954b5b90e9f01528", "d2d2c6e1c938ef77", "954b5b90e9f01528", "78bc753cca477aea"]),
        ((300, 100), (60, 50),  ["c97e4512d6a8d1e6", "9088c1a74deefd9d", "dc4f3fc90b4e1fe3", "fcf1c956a555a9fe"]),
    ];
    for (from, to, expected) in cases {
        let (from, to) = (size(from), size(to));
        let got = [
            resized(from, to, Resample::Pil(Filter::Bicubic, HORIZONTAL)),
            resized(from, to, Resample::Pil(Filter::Lanczos, HORIZONTAL)),
            vertical_first(from, to, Filter::Bicubic),
            resized(from, to, Resample::AtenU8),
        ];
        assert_eq!(
            expected,
            got.map(|bytes| digest(&bytes))[..],
            "{from} to {to}"
        );
    }
}

#[test]
fn a_resize_has_the_pinned_bytes() {
    #[rustfmt::skip]
    let expected = [
        47, 113, 142, 159, 163, 105, 95, 153, 173, 121, 91, 107, 127, 138, 161, 112, 169, 134, 143, 139,
        115, 106, 166, 114, 123, 139, 162, 174, 111, 133, 139, 138, 147, 135, 138, 140, 139, 90, 156, 155,
        116, 169, 79, 144, 85, 122, 193, 98, 141, 111, 103, 103, 125, 125, 141, 96, 171, 79, 148, 155,
    ];
    let how = Resample::Pil(Filter::Bicubic, HORIZONTAL);
    assert_eq!(expected[..], resized(size((6, 8)), size((4, 5)), how));
}

/// The default rule gives the bytes of Pillow 13.0.
#[test]
fn pass_order_changes_the_bytes() {
    let (from, to) = (size((300, 100)), size((60, 50)));
    #[rustfmt::skip]
    let cases = [
        (PassOrder::default(),  "dc4f3fc90b4e1fe3"),
        (PassOrder::Pillow12_2, "c97e4512d6a8d1e6"),
        (PassOrder::Horizontal, "c97e4512d6a8d1e6"),
    ];
    for (order, expected) in cases {
        let bytes = resized(from, to, Resample::Pil(Filter::Bicubic, order));
        assert_eq!(expected, digest(&bytes), "{order}");
    }
    let (from, to) = (size((301, 3)), size((60, 50)));
    let bytes = resized(
        from,
        to,
        Resample::Pil(Filter::Bicubic, PassOrder::Pillow12_2),
    );
    assert_eq!(vertical_first(from, to, Filter::Bicubic), bytes);
}

#[test]
fn same_size_is_a_copy() {
    let image = size((3, 5));
    for how in every_method() {
        assert_eq!(noise(image), resized(image, image, how), "{how:?}");
    }
}

#[test]
fn invalid_requests_are_refused() {
    let how = Resample::AtenU8;
    let one = size((1, 1));
    let check = |src: &[u8], from, to| resize_rgb(src, from, to, how).unwrap_err();
    for to in [size((0, 1)), size((1, 0)), size((0, 0))] {
        assert_eq!(ResizeError::EmptyOutput(to), check(&[0; 3], one, to));
    }
    let empty = size((0, 4));
    assert_eq!(ResizeError::EmptyInput(empty), check(&[], empty, one));
    for got in [0, 2, 4] {
        let expected = ResizeError::Length { size: one, got };
        assert_eq!(expected, check(&vec![0; got], one, one));
    }
    let overflow = size((usize::MAX / 2, 3));
    let expected = ResizeError::Length {
        size: overflow,
        got: 3,
    };
    assert_eq!(expected, check(&[0; 3], overflow, one));
    for to in [
        size((usize::MAX, 1)),
        size((1, usize::MAX)),
        size((1 << 40, 1 << 40)),
    ] {
        let expected = ResizeError::TooLarge { from: one, to };
        assert_eq!(expected, check(&[0; 3], one, to));
    }
    assert!(Resample::named("nearest", HORIZONTAL).is_err());
}

#[test]
fn errors_state_the_sizes() {
    #[rustfmt::skip]
    let cases = [
        (ResizeError::EmptyOutput(size((0, 5))), "output size must be positive, got 0 high, 5 wide"),
        (ResizeError::EmptyInput(size((2, 0))), "input size must be positive, got 2 high, 0 wide"),
        (ResizeError::Length { size: size((2, 1)), got: 5 }, "an RGB image 2 high, 1 wide does not have 5 bytes"),
        (ResizeError::TooLarge { from: size((1, 2)), to: size((3, 4)) },
            "not enough memory to resize from 1 high, 2 wide to 3 high, 4 wide"),
    ];
    for (error, expected) in cases {
        assert_eq!(expected, error.to_string());
    }
}

/// A canvas that does not match the image or the output is refused before any work.
#[test]
fn canvas_must_match_image_and_output() {
    let fits = |[top, height, band_rows, strip_rows, band_len]: [usize; 5], out: usize| {
        let canvas = Canvas {
            top,
            height,
            band_rows,
            strip_rows,
            band_len,
        };
        let (from, to) = (size((1, 1)), size((4, 1)));
        let mut out = vec![0_u8; out];
        let resizing = Resizing {
            rgb: &[0; 3],
            from,
            to,
            resample: Resample::AtenU8,
        };
        resize_into(&resizing, canvas, &mut out, |_, _, _| ()).is_ok()
    };
    #[rustfmt::skip]
    let cases = [
        ("one band",                 [0, 4, 4, 4, 3],          3, true),
        ("two bands",                [0, 4, 2, 1, 3],          6, true),
        ("strips over two bands",    [0, 4, 2, 9, 3],          6, true),
        ("the longest strip",        [0, 4, 2, usize::MAX, 3], 6, true),
        ("a shorter last band",      [0, 4, 3, 3, 3],          4, true),
        ("rows above and below",     [2, 9, 3, 2, 1],          3, true),
        ("rows above only",          [1, 5, 5, 5, 1],          1, true),
        ("canvas too low",           [0, 3, 3, 3, 1],          1, false),
        ("image past the end",       [2, 5, 5, 5, 1],          1, false),
        ("image offset overflows",   [usize::MAX, 5, 5, 5, 1], 1, false),
        ("bands without rows",       [0, 4, 0, 1, 1],          4, false),
        ("strips without rows",      [0, 4, 1, 0, 1],          4, false),
        ("bands without elements",   [0, 4, 4, 4, 0],          1, false),
        ("output for one band less", [0, 4, 2, 2, 3],          3, false),
        ("output for one band more", [0, 4, 2, 2, 3],          7, false),
        ("no output",                [0, 4, 2, 2, 3],          0, false),
    ];
    for (name, canvas, out, expected) in cases {
        assert_eq!(expected, fits(canvas, out), "{name}");
    }
}

fn every_method() -> Vec<Resample> {
    let mut methods = vec![Resample::AtenU8];
    for order in PassOrder::ALL {
        methods.push(Resample::Pil(Filter::Lanczos, order));
        methods.push(Resample::Pil(Filter::Bicubic, order));
    }
    methods
}

/// One pass by the formulas: every target byte separately, in 64-bit integers.
fn plain_pass(src: &[u8], from: Size, to: Size, how: Resample) -> Vec<u8> {
    let along_rows = from.width != to.width;
    let axis = if along_rows {
        how.axis(from.width, to.width)
    } else {
        how.axis(from.height, to.height)
    };
    let axis = axis.ok().unwrap();
    let mut out = Vec::new();
    for y in 0..to.height {
        for x in 0..to.width {
            for c in 0..3 {
                let taps = axis.taps(if along_rows { x } else { y });
                let mut sum = 1_i64 << axis.precision() >> 1;
                for (tap, &weight) in taps.weights.iter().enumerate() {
                    let at = taps.start + tap;
                    let (y, x) = if along_rows { (y, at) } else { (at, x) };
                    sum += i64::from(src[(y * from.width + x) * 3 + c]) * i64::from(weight);
                }
                out.push((sum >> axis.precision()).clamp(0, 255) as u8);
            }
        }
    }
    out
}

fn plain(src: &[u8], from: Size, to: Size, how: Resample) -> Vec<u8> {
    let intermediate = if how.vertical_first(from, to) {
        size((to.height, from.width))
    } else {
        size((from.height, to.width))
    };
    let mut image = (src.to_vec(), from);
    for next in [intermediate, to] {
        if image.1 != next {
            image = (plain_pass(&image.0, image.1, next, how), next);
        }
    }
    image.0
}

fn side() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1), 1..9_usize, 40..46_usize, 1..130_usize]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For all sizes of bands and strips, every canvas row is passed once and in order within its
    /// band. Rows of the image have its bytes, and the rows around it have none.
    #[test]
    fn strips_contain_their_rows(
        from in (side(), side()),
        to in (side(), side()),
        how in prop::sample::select(every_method()),
        (top, below) in (0..9_usize, 0..9_usize),
        (band_rows, strip_rows) in (1..40_usize, 1..40_usize),
    ) {
        let (from, to) = (size(from), size(to));
        let image = resized(from, to, how);
        let height = top + to.height + below;
        // Records the number and bytes of each row. A row outside of the image has no bytes.
        let mut bands: Vec<Vec<(usize, Vec<u8>)>> = vec![vec![]; height.div_ceil(band_rows)];
        let canvas = Canvas { top, height, band_rows, strip_rows, band_len: 1 };
        let resizing = Resizing { rgb: &noise(from), from, to, resample: how };
        resize_into(&resizing, canvas, &mut bands, |y, strip, band| {
            assert_eq!(to.width * 3, strip.row_len);
            let mut rows = strip.rows.chunks_exact(strip.row_len);
            let left_in_band = (height - y).min(band_rows - y % band_rows);
            band[0].extend((0..strip_rows.min(left_in_band)).map(|at| {
                let row = if at < strip.above { None } else { rows.next() };
                (y + at, row.unwrap_or_default().to_vec())
            }));
            assert_eq!(None, rows.next());
        }).unwrap();
        let mut rows = image.chunks_exact(to.width * 3);
        let expected: Vec<(usize, Vec<u8>)> = (0..height)
            .map(|y| {
                let inside = (top..top + to.height).contains(&y);
                (y, if inside { rows.next().unwrap().to_vec() } else { vec![] })
            })
            .collect();
        for (index, band) in bands.iter().enumerate() {
            let end = height.min((index + 1) * band_rows);
            prop_assert_eq!(&expected[index * band_rows..end], &band[..]);
        }
    }

    /// The bytes equal those of the plain formulas, for all blocks, bands, threads and instruction sets.
    #[test]
    fn agrees_with_the_plain_formulas(
        from in (side(), side()),
        to in (side(), side()),
        how in prop::sample::select(every_method()),
        // Extreme values reach the clamps, noise does not.
        contrast in any::<bool>(),
    ) {
        let (from, to) = (size(from), size(to));
        let mut src = noise(from);
        if contrast {
            for byte in &mut src {
                *byte = if *byte < 128 { 0 } else { 255 };
            }
        }
        let expected = plain(&src, from, to, how);
        prop_assert_eq!(&expected, &resize_rgb(&src, from, to, how).unwrap());
        for isa in Isa::supported() {
            let plan = Plan::new(isa, &src, from, to, how).ok().unwrap();
            let mut rows = plan.rows(1).ok().unwrap();
            for (y, expected) in expected.chunks_exact(to.width * 3).enumerate() {
                prop_assert_eq!(expected, rows.get(y..y + 1), "{:?}, row {}", isa, y);
            }
        }
    }
}
