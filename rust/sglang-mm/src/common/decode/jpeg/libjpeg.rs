//! Safe wrapper of the one function in `shim.c`.

use std::ffi::{CStr, c_char, c_int};

// Links the library that `shim.c` calls.
use mozjpeg_sys as _;

use super::super::super::memory;
use super::super::error::DecodeError;
use super::super::format::Format;
use super::kernels::Kernels;
use crate::common::Size;

/// Size of libjpeg's message buffer, including the final zero byte.
const MESSAGE_LEN: usize = 200;

const DECODED: c_int = 0;
const BROKEN: c_int = 1;
const TRUNCATED: c_int = 2;
const NO_MEMORY: c_int = 4;

/// The channels per pixel that libjpeg should return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channels {
    Rgb = 3,
    Cmyk = 4,
}

unsafe extern "C" {
    fn sglang_mm_jpeg_decode(
        bytes: *const u8,
        length: usize,
        pixels: *mut u8,
        width: usize,
        height: usize,
        channels: c_int,
        kernels: *const Kernels,
        message: *mut c_char,
    ) -> c_int;
}

/// Decodes the image in `bytes`, which must have the size `size`.
pub(super) fn decode(bytes: &[u8], size: Size, channels: Channels) -> Result<Vec<u8>, DecodeError> {
    decode_with(Kernels::best(), bytes, size, channels)
}

fn decode_with(
    kernels: &Kernels,
    bytes: &[u8],
    size: Size,
    channels: Channels,
) -> Result<Vec<u8>, DecodeError> {
    let length = size.pixels() * channels as usize;
    let mut pixels = memory::empty(length)?;
    let mut message: [c_char; MESSAGE_LEN] = [0; MESSAGE_LEN];
    // SAFETY: the pointers are valid for the given lengths during the call, which keeps none of them.
    // `pixels` has capacity for an image of `size`. C compares that with the size in the file before it
    // writes rows, and it never unwinds.
    let outcome = unsafe {
        sglang_mm_jpeg_decode(
            bytes.as_ptr(),
            bytes.len(),
            pixels.as_mut_ptr(),
            size.width,
            size.height,
            channels as c_int,
            kernels,
            message.as_mut_ptr(),
        )
    };
    match outcome {
        DECODED => {
            // SAFETY: C wrote every row.
            unsafe { pixels.set_len(length) };
            Ok(pixels)
        }
        BROKEN => Err(DecodeError::corrupt(Format::Jpeg, text(&message))),
        TRUNCATED => Err(DecodeError::truncated(Format::Jpeg, "the pixel data")),
        NO_MEMORY => Err(DecodeError::OutOfMemory),
        _ => Err(DecodeError::corrupt(
            Format::Jpeg,
            "its headers give two different sizes",
        )),
    }
}

/// The message as text. It holds no bytes of the file, because libjpeg inserts numbers only.
fn text(message: &[c_char; MESSAGE_LEN]) -> String {
    let bytes = message.map(|byte| byte as u8);
    CStr::from_bytes_until_nul(&bytes).map_or_else(
        |_| "unknown error".to_owned(),
        |text| text.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{env, fs};

    use super::super::super::pixels::DecodeLimits;
    use super::super::super::sniff::sniff;
    use super::super::Header;
    use super::*;

    #[test]
    fn invalid_files_return_errors() {
        let rows: &[(&str, &[u8])] = &[
            ("empty", b""),
            ("only the start", b"\xff\xd8"),
            (
                "garbage",
                b"\xff\xd8\xff\xe0garbage that is no segment at all",
            ),
            (
                "no tables",
                b"\xff\xd8\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00",
            ),
            ("not a JPEG", b"hello, world"),
        ];
        let size = Size {
            width: 2,
            height: 2,
        };
        for (name, bytes) in rows {
            let result = decode(bytes, size, Channels::Rgb);
            assert!(result.is_err(), "{name}");
        }
    }

    /// Every JPEG of the golden set decodes to the same bytes with every set of kernels.
    #[test]
    fn all_kernels_decode_the_same_bytes() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/images_open");
        let golden =
            env::var_os("SGLANG_GOLDEN").map_or(golden, |set| Path::new(&set).join("images_open"));
        let mut compared = 0;
        for entry in fs::read_dir(golden).unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            let Some(Format::Jpeg) = sniff(&bytes) else {
                continue;
            };
            let Ok(header) = Header::read(&bytes, DecodeLimits::default()) else {
                continue;
            };
            let decode = |kernels| decode_with(kernels, &bytes, header.size(), Channels::Rgb);
            let expected = decode(&Kernels::SCALAR);
            for (name, kernels) in Kernels::supported() {
                assert!(decode(kernels) == expected, "{name}: {}", path.display());
            }
            compared += 1;
        }
        assert!(compared > 0, "no JPEG in the golden set");
    }
}
