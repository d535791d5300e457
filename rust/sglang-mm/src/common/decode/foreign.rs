//! Names the format of a file that is not supported, so that the error says what was sent.
//!
//! Invariant: only the first kibibyte is examined, and the answer is used in error messages only.

/// What `bytes` looks like, with its article: `a TIFF file`.
pub(super) fn name(bytes: &[u8]) -> &'static str {
    let start = &bytes[..bytes.len().min(1024)];
    container(start)
        .or_else(|| signature(start))
        .or_else(|| text(start))
        .unwrap_or("an unknown format")
}

/// Container formats: the file type follows a start that the whole family shares.
fn container(start: &[u8]) -> Option<&'static str> {
    let brand = start.get(8..12);
    match (start.get(..4), start.get(4..8), brand) {
        (_, Some(b"ftyp"), Some(brand)) => Some(match brand {
            b"avif" | b"avis" => "an AVIF file",
            b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" => {
                "a HEIC file"
            }
            b"qt  " => "a QuickTime video",
            _ => "an MP4 video",
        }),
        (Some(b"RIFF"), _, Some(b"WEBP")) => Some("a WebP file without image data"),
        (Some(b"RIFF"), _, Some(b"AVI ")) => Some("an AVI video"),
        (Some(b"RIFF"), _, Some(b"WAVE")) => Some("a WAV sound"),
        _ => None,
    }
}

fn signature(start: &[u8]) -> Option<&'static str> {
    const SIGNATURES: &[(&[u8], &str)] = &[
        (b"II*\0", "a TIFF file"),
        (b"MM\0*", "a TIFF file"),
        (b"II+\0", "a TIFF file"),
        (b"MM\0+", "a TIFF file"),
        (b"\0\0\0\x0cJXL ", "a JPEG XL file"),
        (b"\xff\x0a", "a JPEG XL file"),
        (b"\0\0\0\x0cjP  ", "a JPEG 2000 file"),
        (b"\xff\x4f\xff\x51", "a JPEG 2000 file"),
        (b"\xff\xd8", "a JPEG file without segments"),
        (b"\x89PNG", "a PNG file with a damaged signature"),
        (b"GIF8", "a GIF file of an unknown version"),
        (b"\0\0\x01\0", "an ICO file"),
        (b"8BPS", "a Photoshop file"),
        (b"qoif", "a QOI file"),
        (b"DDS ", "a DDS file"),
        (b"%PDF-", "a PDF file"),
        (b"%!PS", "a PostScript file"),
        (b"\x1a\x45\xdf\xa3", "a Matroska or WebM video"),
        (b"OggS", "an Ogg file"),
        (b"ID3", "an MP3 sound"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1f\x8b", "a gzip archive"),
    ];
    let found = SIGNATURES
        .iter()
        .find(|(magic, _)| start.starts_with(magic));
    found.map(|(_, name)| *name)
}

fn text(start: &[u8]) -> Option<&'static str> {
    if start.is_empty() {
        return Some("an empty file");
    }
    let plain = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace();
    if !start.iter().all(plain) {
        return None;
    }
    let start = start.to_ascii_lowercase();
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&start);
    let has = |word: &[u8]| start.windows(word.len()).any(|window| window == word);
    Some(match start.trim_ascii_start().first() {
        Some(b'<') if has(b"<svg") => "an SVG drawing",
        Some(b'<') if has(b"<html") || has(b"<!doctype html") => "an HTML page",
        Some(b'<') => "an XML text",
        Some(b'{' | b'[') => "a JSON text",
        _ if start.is_ascii() => "a text",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_named_from_the_first_bytes() {
        let rows: &[(&[u8], &str)] = &[
            (b"", "an empty file"),
            (b"\0\0\0\x20ftypavif\0\0\0\0", "an AVIF file"),
            (b"\0\0\0\x18ftypheic", "a HEIC file"),
            (b"\0\0\0\x18ftypmif1", "a HEIC file"),
            (b"\0\0\0\x18ftypisom", "an MP4 video"),
            (b"\0\0\0\x18ftypqt  ", "a QuickTime video"),
            (b"RIFF\x04\0\0\0WEBP", "a WebP file without image data"),
            (b"RIFF\x04\0\0\0WAVE", "a WAV sound"),
            (b"MM\0*\0\0\0\x08", "a TIFF file"),
            (b"\xff\x0a\xfa", "a JPEG XL file"),
            (b"\x89PNG\n\x1a\n", "a PNG file with a damaged signature"),
            (b"%PDF-1.7\n%\xe2\xe3", "a PDF file"),
            (b" \n<?xml version=\"1.0\"?>\n<SVG>", "an SVG drawing"),
            (b"\xef\xbb\xbf<svg>", "an SVG drawing"),
            (b"<!DOCTYPE HTML><p>403", "an HTML page"),
            (b"<?xml version=\"1.0\"?><feed/>", "an XML text"),
            (b"{\"error\": 403}", "a JSON text"),
            (b"403 Forbidden", "a text"),
            (b"\x80\x81", "an unknown format"),
            (b"\0\x07\x01", "an unknown format"),
        ];
        for (bytes, expected) in rows {
            assert_eq!(name(bytes), *expected, "{}", bytes.escape_ascii());
        }
    }
}
