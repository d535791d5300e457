//! Files that Pillow decodes differently from a strict decoder.
//!
//! Each row was compared with Pillow 13.0.0. `None` means that the file is refused.

use std::io::Write;

use flate2::{Compression, write::ZlibEncoder};
use sglang_mm_core::common::decode::decode_rgb;

type Rgb = [u8; 3];

#[track_caller]
fn check(name: &str, file: &[u8], expected: Option<&[Rgb]>) {
    let pixels = decode_rgb(file).ok().map(|image| image.pixels);
    assert_eq!(pixels, expected.map(<[Rgb]>::concat), "{name}");
}

fn grey(shade: u8) -> Rgb {
    [shade; 3]
}

fn chunk(kind: &str, body: &[u8]) -> Vec<u8> {
    let named = [kind.as_bytes(), body].concat();
    let checksum = crc32fast::hash(&named).to_be_bytes();
    [
        &(body.len() as u32).to_be_bytes(),
        named.as_slice(),
        &checksum,
    ]
    .concat()
}

/// A chunk with a wrong checksum.
fn chunk_with_wrong_checksum(kind: &str, body: &[u8]) -> Vec<u8> {
    let mut chunk = chunk(kind, body);
    *chunk.last_mut().unwrap() ^= 1;
    chunk
}

fn header(width: u8, height: u8, depth: u8, kind: u8) -> Vec<u8> {
    chunk(
        "IHDR",
        &[0, 0, 0, width, 0, 0, 0, height, depth, kind, 0, 0, 0],
    )
}

fn deflated(rows: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(rows).unwrap();
    encoder.finish().unwrap()
}

fn data(rows: &[u8]) -> Vec<u8> {
    chunk("IDAT", &deflated(rows))
}

fn png(chunks: &[Vec<u8>]) -> Vec<u8> {
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunks.concat()].concat()
}

#[test]
fn png_streams_may_end_after_a_row() {
    let end = || chunk("IEND", b"");
    let tall = |data| png(&[header(1, 2, 8, 0), data, end()]);
    let whole = deflated(&[0, 7, 0, 9]);
    let mut wrong_checksum = whole.clone();
    *wrong_checksum.last_mut().unwrap() ^= 1;
    let both = [grey(7), grey(9)];

    check("whole", &tall(data(&[0, 7, 0, 9])), Some(&both));
    check("too long", &tall(data(&[0, 7, 0, 9, 0, 5])), Some(&both));
    check(
        "a row is missing",
        &tall(data(&[0, 7])),
        Some(&[grey(7), grey(0)]),
    );
    check("half a row is missing", &tall(data(&[0, 7, 0])), None);
    check(
        "no checksum at the end",
        &tall(chunk("IDAT", &whole[..whole.len() - 4])),
        Some(&both),
    );
    check(
        "a wrong checksum at the end",
        &tall(chunk("IDAT", &wrong_checksum)),
        None,
    );
    check(
        "a filter that does not exist",
        &tall(data(&[5, 7, 0, 9])),
        None,
    );
}

#[test]
fn png_missing_rows_have_index_0() {
    let indexed = png(&[
        header(1, 2, 8, 3),
        chunk("PLTE", &[1, 2, 3]),
        data(&[0, 0]),
        chunk("IEND", b""),
    ]);
    check(
        "a missing row of indices",
        &indexed,
        Some(&[[1, 2, 3], [1, 2, 3]]),
    );
}

#[test]
fn png_checksums_are_compared_before_the_pixels() {
    let pixel = Some(&[grey(7)][..]);
    let with = |before: Vec<u8>, data: Vec<u8>, after: Vec<u8>| {
        png(&[header(1, 1, 8, 0), before, data, after, chunk("IEND", b"")])
    };
    let good = || data(&[0, 7]);
    let wrong_data = || chunk_with_wrong_checksum("IDAT", &deflated(&[0, 7]));
    let (none, gamma) = (Vec::new, [0, 0, 0, 9]);

    check(
        "wrong, before the data",
        &with(chunk_with_wrong_checksum("gAMA", &gamma), good(), none()),
        None,
    );
    check(
        "wrong, in the data",
        &with(none(), wrong_data(), none()),
        pixel,
    );
    check(
        "wrong, after the data",
        &with(none(), good(), chunk_with_wrong_checksum("gAMA", &gamma)),
        pixel,
    );
    check(
        "truncated, before the data",
        &with(chunk("gAMA", &gamma[..3]), good(), none()),
        None,
    );
    check(
        "truncated, after the data",
        &with(none(), good(), chunk("gAMA", &gamma[..3])),
        None,
    );
    let without_end = png(&[header(1, 1, 8, 0), good()]);
    check("no end", &without_end, pixel);
    let without_checksum = &without_end[..without_end.len() - 4];
    check("no end, no checksum", without_checksum, pixel);
}

#[test]
fn png_colours_are_converted_like_pillow_does() {
    let one = |parts: &[Vec<u8>]| png(&[parts.concat(), chunk("IEND", b"")]);
    let shades = [grey(0), grey(85), grey(170), grey(255)];
    check(
        "2 bits of grey",
        &one(&[header(4, 1, 2, 0), data(&[0, 0x1b])]),
        Some(&shades),
    );
    check(
        "1 bit of grey",
        &one(&[header(2, 1, 1, 0), data(&[0, 0x40])]),
        Some(&[grey(0), grey(255)]),
    );
    let without_palette = one(&[header(1, 1, 8, 3), data(&[0, 9])]);
    check("no palette is black", &without_palette, Some(&[grey(0)]));
    let transparent = one(&[header(1, 1, 8, 3), chunk("tRNS", &[0]), data(&[0, 9])]);
    check("a transparent index without a palette", &transparent, None);
    let short = one(&[
        header(2, 1, 8, 3),
        chunk("PLTE", &[1, 2, 3]),
        chunk("tRNS", &[0]),
        data(&[0, 0, 1]),
    ]);
    check(
        "an index past the palette is black",
        &short,
        Some(&[[1, 2, 3], grey(0)]),
    );
    check(
        "alpha is dropped",
        &one(&[header(1, 1, 8, 6), data(&[0, 11, 22, 33, 0])]),
        Some(&[[11, 22, 33]]),
    );
    check(
        "16 bits are refused",
        &one(&[header(1, 1, 16, 0), data(&[0, 1, 2])]),
        None,
    );
}

/// A GIF frame of one pixel with index 0, with or without a colour table of two entries.
fn frame(left: u8, table: Option<&[u8]>) -> Vec<u8> {
    let flags = if table.is_some() { 0x80 } else { 0 };
    [
        &[b',', left, 0, 0, 0, 1, 0, 1, 0, flags],
        table.unwrap_or_default(),
        &[2, 2, 0x44, 0x01, 0, b';'],
    ]
    .concat()
}

#[test]
fn gif_frames_are_painted_on_a_canvas() {
    type Row<'a> = (&'a str, Vec<u8>, Option<&'a [Rgb]>);
    const GLOBAL: &[u8] = &[10, 0, 0, 20, 0, 0];
    const RAMP: &[u8] = &[0, 0, 0, 1, 1, 1];
    const LOCAL: &[u8] = &[30, 0, 0, 40, 0, 0];
    const CONTROL: &[u8] = b"!\xf9\x04\x01\0\0\x01\0";
    let screen = |width: u8, flags: u8| [b"GIF89a", &[width, 0, 1, 0, flags, 0, 0][..]].concat();
    let [zero, one] = [[10, 0, 0], [20, 0, 0]];
    #[rustfmt::skip]
    let rows: &[Row<'_>] = &[
        ("uncovered area is index 0", [&screen(2, 0x80), GLOBAL, &frame(1, None)].concat(), Some(&[zero, zero])),
        (
            "uncovered area is transparent",
            [&screen(2, 0x80), GLOBAL, CONTROL, &frame(1, None)].concat(),
            Some(&[one, zero]),
        ),
        (
            "the frame enlarges the canvas",
            [&screen(1, 0x80), GLOBAL, CONTROL, &frame(1, None)].concat(),
            Some(&[one, zero]),
        ),
        ("a local table wins", [&screen(1, 0x80), GLOBAL, &frame(0, Some(LOCAL))].concat(), Some(&[[30, 0, 0]])),
        ("a ramp is skipped", [&screen(1, 0x80), GLOBAL, &frame(0, Some(RAMP))].concat(), Some(&[zero])),
        (
            "no table: indices are shades",
            [&screen(2, 0), CONTROL, &frame(1, None)].concat(),
            Some(&[grey(1), grey(0)]),
        ),
        ("no frame", [&screen(1, 0x80), GLOBAL, b";"].concat(), None),
    ];
    for (name, file, expected) in rows {
        check(name, file, *expected);
    }
}

#[test]
fn the_first_frame_of_webp_is_not_blended() {
    // The frame is a pixel of alpha 128 at (2, 0), on a canvas of three pixels. libwebp copies it
    // unchanged.
    let file = include_bytes!("decode_offset_frame.webp");
    check(
        "on a black canvas",
        file,
        Some(&[grey(0), grey(0), [200, 100, 50]]),
    );
}

/// A grey JPEG of one block. Every coefficient has 15 bits, so its absolute value is at least 16384.
fn one_block(multiplier: u16, coefficients: &[i16]) -> Vec<u8> {
    let codes = std::iter::once("0").chain(std::iter::repeat("01"));
    let coded = coefficients.iter().zip(codes).map(|(&value, code)| {
        let stored = if value > 0 { value } else { value + 32_767 };
        format!("{code}{stored:015b}")
    });
    let mut bits: String = coded.collect();
    bits += "00";
    bits += &"1".repeat(bits.len().next_multiple_of(8) - bits.len());
    let octets = bits.as_bytes().chunks(8);
    let data =
        octets.map(|bits| u8::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap());
    let stuffed: Vec<u8> = data
        .flat_map(|byte| {
            if byte == 255 {
                vec![255, 0]
            } else {
                vec![byte]
            }
        })
        .collect();
    [
        b"\xff\xd8\xff\xdb\0\x83\x10",
        multiplier.to_be_bytes().repeat(64).as_slice(),
        b"\xff\xc1\0\x0b\x08\0\x08\0\x08\x01\x01\x11\0",
        b"\xff\xc4\0\x14\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0f",
        b"\xff\xc4\0\x15\x10\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0f",
        b"\xff\xda\0\x08\x01\x01\0\0\x3f\0",
        &stuffed,
        b"\xff\xd9",
    ]
    .concat()
}

/// Coefficients out of range, as in damaged files, wrap and clamp as in libjpeg-turbo's vector code.
/// libjpeg's plain C gives other samples in the last three rows.
#[test]
fn jpeg_coefficients_out_of_range_match_vector_code() {
    #[rustfmt::skip]
    let rows: &[(&str, u16, &[i16], [u8; 8])] = &[
        ("a constant that wraps between the passes", 1, &[20_000], [255; 8]),
        ("a constant that wraps before the first pass", 2, &[16_484], [153; 8]),
        ("a single row is not clamped", 1, &[20_000, -20_000], [0, 48, 225, 255, 255, 255, 255, 255]),
        ("rows and columns are clamped", 1, &[20_000, -17_000, 20_000], [0, 0, 255, 255, 255, 255, 255, 255]),
        ("products that wrap", 3, &[20_000, -17_001, 16_385], [255, 255, 0, 0, 0, 0, 0, 0]),
    ];
    for (name, multiplier, coefficients, first_row) in rows {
        let pixels = decode_rgb(&one_block(*multiplier, coefficients))
            .unwrap()
            .pixels;
        assert_eq!(pixels[..24], first_row.map(grey).concat(), "{name}");
    }
}
