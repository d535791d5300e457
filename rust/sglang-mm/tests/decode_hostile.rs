//! Damaged and malicious files are refused without a panic, without a hang, and without allocating
//! the memory for the size that they declare.

#[path = "../../test-support/long_runs.rs"]
mod long_runs;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use sglang_mm_core::common::decode::{
    DecodeError, DecodeLimits, DecodeOptions, decode_rgb, decode_rgb_with, dimensions,
    dimensions_with,
};

use long_runs::amount;

/// The system's allocator with counters. It counts the bytes that Rust code holds in each thread,
/// records the peak, and refuses allocations above a limit.
struct CountingAllocator;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static MAX_ALLOCATION: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn allowed(size: usize) -> bool {
    size <= MAX_ALLOCATION.get()
}

/// The balance of a thread may be negative, because it may free memory that another thread allocated.
fn hold(change: isize) {
    HELD.set(HELD.get() + change);
    PEAK.set(PEAK.get().max(HELD.get()));
}

/// Runs `work` and returns its result and the peak of the bytes that it held.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    (result, PEAK.get() - before)
}

// SAFETY: each call is passed unchanged to the system's allocator, or returns null, which is allowed.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !allowed(layout.size()) {
            return std::ptr::null_mut();
        }
        hold(layout.size() as isize);
        // SAFETY: the caller guarantees what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !allowed(layout.size()) {
            return std::ptr::null_mut();
        }
        hold(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !allowed(size) {
            return std::ptr::null_mut();
        }
        hold(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The images of the small golden set, which is in the repository.
fn small_images() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/images_open");
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "the small golden set is empty");
    paths
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(path).unwrap())
        })
        .collect()
}

/// A small random generator, so that a failing seed can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

/// Checks that a decoded image is complete, and that the peak memory is proportional to the size in the
/// header and to the file: the image, its stored form, and a copy if it is transposed.
fn check(bytes: &[u8], case: &str) {
    const OTHER: usize = 1 << 18;
    for exif_transpose in [false, true] {
        let options = DecodeOptions {
            limits: DecodeLimits {
                max_pixels: 1 << 20,
            },
            exif_transpose,
        };
        let (result, peak) = peak_of(|| decode_rgb_with(bytes, &options));
        let (height, width) = dimensions_with(bytes, &options).unwrap_or_default();
        let limit = height * width * 12 + bytes.len() * 4 + OTHER;
        assert!(
            peak as usize <= limit,
            "{case} took {peak} bytes, over {limit}"
        );
        if let Ok(image) = result {
            let size = (image.height, image.width);
            assert_eq!(image.pixels.len(), image.height * image.width * 3, "{case}");
            assert_eq!(dimensions_with(bytes, &options), Ok(size), "{case}");
        }
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let rounds = amount(200, 20_000) as u64;
    for (name, bytes) in small_images() {
        for seed in 0..rounds {
            let mut random = Random(seed);
            let mut damaged = bytes.clone();
            // Half of the seeds change the headers, where wrong values cost most.
            let range = if seed % 2 == 0 {
                bytes.len()
            } else {
                bytes.len().min(64)
            };
            for _ in 0..=random.below(4) {
                damaged[random.below(range)] = random.below(256) as u8;
            }
            check(&damaged, &format!("{name}, seed {seed}"));
        }
    }
}

#[test]
fn noise_after_a_signature_never_panics() {
    let rounds = amount(200, 1_000_000) as u64;
    let signatures: &[&[u8]] = &[
        b"\xff\xd8\xff",
        b"\x89PNG\r\n\x1a\n",
        b"RIFF\xff\0\0\0WEBPVP8 ",
        b"RIFF\xff\0\0\0WEBPVP8L",
        b"RIFF\xff\0\0\0WEBPVP8X",
        b"GIF89a",
        b"BM",
    ];
    for signature in signatures {
        for seed in 0..rounds {
            let mut random = Random(seed);
            let mut file = signature.to_vec();
            file.extend((0..random.below(600)).map(|_| random.below(256) as u8));
            check(&file, &format!("{}, seed {seed}", signature.escape_ascii()));
        }
    }
}

#[test]
fn truncated_files_never_panic_or_lose_pixels_silently() {
    for (name, bytes) in small_images() {
        let whole = decode_rgb(&bytes);
        let step = bytes.len().div_ceil(60);
        for end in (0..bytes.len()).step_by(step) {
            let truncated = decode_rgb(&bytes[..end]);
            assert!(
                truncated.is_err() || truncated == whole,
                "{name} truncated at {end}"
            );
        }
    }
}

/// A PNG chunk.
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

/// Small files whose headers declare a square image.
fn files_declaring(side: u16) -> Vec<(&'static str, Vec<u8>)> {
    let [long, short] = [&u32::from(side).to_be_bytes()[..], &side.to_be_bytes()];
    let [long_le, short_le] = [&u32::from(side).to_le_bytes()[..], &side.to_le_bytes()];
    let png_header = [long, long, &[8, 6, 0, 0, 0]].concat();
    let jpeg = [
        b"\xff\xd8\xff\xc0\0\x0b\x08",
        short,
        short,
        b"\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0\x3f\0",
    ];
    let png = [
        &b"\x89PNG\r\n\x1a\n"[..],
        &chunk("IHDR", &png_header),
        &chunk("IDAT", b"x"),
    ];
    let gif = [
        b"GIF89a",
        short_le,
        short_le,
        b"\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0;",
    ];
    let start_of_bmp = b"BM\0\0\0\0\0\0\0\0\0\0\0\0\x28\0\0\0";
    let run_lengths = b"\x01\0\x08\0\x01";
    let bmp = [start_of_bmp, long_le, long_le, run_lengths, &[0; 64]];
    vec![
        ("jpeg", jpeg.concat()),
        ("png", png.concat()),
        ("gif", gif.concat()),
        ("bmp", bmp.concat()),
    ]
}

#[test]
fn bombs_are_refused_from_the_header() {
    let enlarged = b"GIF89a\x01\0\x01\0\0\0\0,\xff\xff\xff\xff\x01\0\x01\0\0\x02\x02\x44\x01\0;";
    let webp = b"RIFF\x12\0\0\0WEBPVP8L\x05\0\0\0\x2f\xfe\xbf\xff\x0f\0";
    let square = files_declaring(65_500).into_iter();
    let bombs = square
        .map(|(name, file)| (name, file, (65_500, 65_500)))
        .chain([
            (
                "gif enlarged by its frame",
                enlarged.to_vec(),
                (65_536, 65_536),
            ),
            ("webp", webp.to_vec(), (16_383, 16_383)),
        ]);
    for (name, bytes, size) in bombs {
        assert_eq!(dimensions(&bytes), Ok(size), "{name}");
        let (refusal, peak) = peak_of(|| decode_rgb(&bytes));
        let words = refusal.as_ref().unwrap_err().to_string();
        assert!(
            matches!(refusal, Err(DecodeError::TooManyPixels { .. })),
            "{name}: {words}"
        );
        assert!(
            words.contains("178956970") && words.contains("max_pixels"),
            "{name}: {words}"
        );
        assert!(peak < 1 << 16, "{name}: {peak} bytes before the refusal");
    }
}

#[test]
fn a_refused_allocation_is_an_error() {
    for (name, file) in files_declaring(4000) {
        MAX_ALLOCATION.set(1 << 20);
        let refusal = decode_rgb(&file);
        MAX_ALLOCATION.set(usize::MAX);
        assert_eq!(refusal, Err(DecodeError::OutOfMemory), "{name}");
    }
}

/// A grey JPEG of 8 by 8 pixels in `scans` scans. All scans after the first are empty.
fn progressive(scans: usize) -> Vec<u8> {
    let tables = b"\xff\xc4\0\x14\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
                   \xff\xc4\0\x14\x10\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    [
        b"\xff\xd8\xff\xdb\0\x43\0",
        &[1; 64][..],
        b"\xff\xc2\0\x0b\x08\0\x08\0\x08\x01\x01\x11\0",
        tables,
        b"\xff\xda\0\x08\x01\x01\0\0\0\0\x7f",
        &b"\xff\xda\0\x08\x01\x01\0\x01\x3f\0\x7f".repeat(scans - 1),
        b"\xff\xd9",
    ]
    .concat()
}

/// A scan takes a dozen bytes of the file but costs a pass over the whole image.
#[test]
fn more_than_100_scans_are_refused() {
    assert_eq!(decode_rgb(&progressive(100)).unwrap().pixels, [128; 192]);
    let refusal = decode_rgb(&progressive(101)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "image decode: JPEG file is corrupt: too many scans"
    );
}

#[test]
fn the_pixel_limit_is_a_setting() {
    let (_, bytes) = small_images()
        .into_iter()
        .find(|(name, _)| name == "pil_hopper.jpg")
        .unwrap();
    let with = |max_pixels| {
        let options = DecodeOptions {
            limits: DecodeLimits { max_pixels },
            exif_transpose: false,
        };
        decode_rgb_with(&bytes, &options)
    };

    assert!(with(128 * 128).is_ok());
    assert!(matches!(
        with(128 * 128 - 1),
        Err(DecodeError::TooManyPixels { .. })
    ));
}

#[test]
fn errors_name_the_format_and_the_problem() {
    #[rustfmt::skip]
    let rows: &[(&str, &[u8], &str)] = &[
        ("empty", b"", "image decode: an empty file is not supported: send a JPEG, PNG, WebP, GIF or BMP file"),
        (
            "an AVIF file",
            b"\0\0\0\x20ftypavif\0\0\0\0",
            "image decode: an AVIF file is not supported: send a JPEG, PNG, WebP, GIF or BMP file",
        ),
        ("a start of JPEG", b"\xff\xd8\xff", "image decode: JPEG file is truncated: it ends inside the headers"),
        ("a start of BMP", b"BM", "image decode: BMP file is truncated: it ends inside the header"),
        (
            "12-bit JPEG",
            b"\xff\xd8\xff\xc1\0\x0b\x0c\0\x01\0\x01\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0\x3f\0",
            "image decode: unsupported color: JPEG with a bit depth of 12; send at most 8",
        ),
        (
            "lossless JPEG",
            b"\xff\xd8\xff\xc3\0\x0b\x08\0\x01\0\x01\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\x01\0\0",
            "image decode: unsupported JPEG file: lossless coding",
        ),
        (
            "a start of WebP",
            b"RIFF\x12\0\0\0WEBPVP8L",
            "image decode: WebP file is truncated: it ends inside its container",
        ),
        ("an empty GIF", b"GIF89a\x01\0\x01\0\0\0\0;", "image decode: GIF file is corrupt: it has no frame"),
    ];
    for (name, bytes, words) in rows {
        assert_eq!(decode_rgb(bytes).unwrap_err().to_string(), *words, "{name}");
    }
}
