//! Detects the format of a file from its first bytes, never from its name.

use super::error::DecodeError;
use super::foreign;
use super::format::Format;

/// The signature of a PNG file.
pub(super) const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The format of `bytes`, or an error that names the unsupported format.
pub(super) fn supported(bytes: &[u8]) -> Result<Format, DecodeError> {
    sniff(bytes).ok_or_else(|| DecodeError::UnknownFormat {
        detected: foreign::name(bytes),
    })
}

/// The format whose signature `bytes` starts with.
#[must_use]
pub fn sniff(bytes: &[u8]) -> Option<Format> {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => Some(Format::Jpeg),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Format::Gif),
        [b'B', b'M', ..] => Some(Format::Bmp),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            b'V',
            b'P',
            b'8',
            b' ' | b'X' | b'L',
            ..,
        ] => Some(Format::WebP),
        _ if bytes.starts_with(PNG_SIGNATURE) => Some(Format::Png),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_detected_from_the_signature() {
        let rows: &[(&str, &[u8], Option<Format>)] = &[
            ("jpeg", b"\xff\xd8\xff\xe0", Some(Format::Jpeg)),
            ("jpeg without a marker", b"\xff\xd8\x00", None),
            ("png", b"\x89PNG\r\n\x1a\n", Some(Format::Png)),
            ("png damaged by a text transfer", b"\x89PNG\n\x1a\n", None),
            ("gif 87a", b"GIF87a", Some(Format::Gif)),
            ("gif 89a", b"GIF89a", Some(Format::Gif)),
            ("gif of an unknown version", b"GIF88a", None),
            ("bmp", b"BM", Some(Format::Bmp)),
            ("webp lossy", b"RIFF\0\0\0\0WEBPVP8 ", Some(Format::WebP)),
            ("webp lossless", b"RIFF\0\0\0\0WEBPVP8L", Some(Format::WebP)),
            ("webp extended", b"RIFF\0\0\0\0WEBPVP8X", Some(Format::WebP)),
            (
                "a RIFF file that is not WebP",
                b"RIFF\0\0\0\0WAVEfmt ",
                None,
            ),
            ("tiff", b"II*\0", None),
            ("empty", b"", None),
        ];
        for (name, bytes, expected) in rows {
            assert_eq!(sniff(bytes), *expected, "{name}");
        }
    }
}
