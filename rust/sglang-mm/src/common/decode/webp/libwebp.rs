//! Safe wrappers of libwebp's demultiplexer and decoder.
//!
//! Invariant: returned slices borrow from the file, and libwebp keeps no pointer after a call or
//! after a [`Container`] is dropped.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

use libwebp_sys as c;

/// The chunks of a complete and well-formed file.
pub(super) struct Container<'a> {
    demuxer: NonNull<c::WebPDemuxer>,
    file: PhantomData<&'a [u8]>,
}

/// The first frame of a file and its place on the canvas.
pub(super) struct Frame<'a> {
    pub(super) data: &'a [u8],
    pub(super) left: usize,
    pub(super) top: usize,
}

/// Why decoding failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    OutOfMemory,
    Truncated,
    Corrupt,
}

impl<'a> Container<'a> {
    /// `None` if libwebp refuses the file.
    pub(super) fn parse(file: &'a [u8]) -> Option<Self> {
        let data = c::WebPData {
            bytes: file.as_ptr(),
            size: file.len(),
        };
        let version = c::WEBP_DEMUX_ABI_VERSION as i32;
        // SAFETY: `data` is valid for the call. The bytes that it points to are valid for `'a`, which the
        // demuxer does not outlive. The state pointer may be null, and a partial file is refused.
        let demuxer =
            unsafe { c::WebPDemuxInternal(&raw const data, 0, std::ptr::null_mut(), version) };
        Some(Self {
            demuxer: NonNull::new(demuxer)?,
            file: PhantomData,
        })
    }

    /// Width and height of the canvas.
    pub(super) fn canvas(&self) -> (u32, u32) {
        use c::WebPFormatFeature::{WEBP_FF_CANVAS_HEIGHT, WEBP_FF_CANVAS_WIDTH};
        // SAFETY: the demuxer lives as long as `self`.
        let get = |feature| unsafe { c::WebPDemuxGetI(self.demuxer.as_ptr(), feature) };
        (get(WEBP_FF_CANVAS_WIDTH), get(WEBP_FF_CANVAS_HEIGHT))
    }

    pub(super) fn first_frame(&self) -> Option<Frame<'a>> {
        let mut frame = MaybeUninit::<c::WebPIterator>::zeroed();
        // SAFETY: the demuxer is alive, and a zeroed iterator is valid to write to.
        let found = unsafe { c::WebPDemuxGetFrame(self.demuxer.as_ptr(), 1, frame.as_mut_ptr()) };
        // SAFETY: zero is valid for every field, and C overwrote fields with valid values only.
        let mut frame = unsafe { frame.assume_init() };
        let placed = (found != 0).then(|| Frame {
            // SAFETY: the fragment is part of the file.
            data: unsafe { part_of_file(frame.fragment) },
            left: frame.x_offset as usize,
            top: frame.y_offset as usize,
        });
        // SAFETY: the iterator was set by the call above, or is all zeros.
        unsafe { c::WebPDemuxReleaseIterator(&raw mut frame) };
        placed
    }

    /// The body of the first chunk called `name`, if the header declares that chunk.
    pub(super) fn chunk(&self, name: &CStr) -> Option<&'a [u8]> {
        let mut chunk = MaybeUninit::<c::WebPChunkIterator>::zeroed();
        let demuxer = self.demuxer.as_ptr();
        // SAFETY: the demuxer is alive, the name has four letters, and a zeroed iterator is valid.
        let found = unsafe { c::WebPDemuxGetChunk(demuxer, name.as_ptr(), 1, chunk.as_mut_ptr()) };
        // SAFETY: zero is valid for every field, and C overwrote fields with valid values only.
        let mut chunk = unsafe { chunk.assume_init() };
        // SAFETY: the chunk is part of the file.
        let body = (found != 0).then(|| unsafe { part_of_file(chunk.chunk) });
        // SAFETY: the iterator was set by the call above, or is all zeros.
        unsafe { c::WebPDemuxReleaseChunkIterator(&raw mut chunk) };
        body
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        // SAFETY: libwebp created the demuxer, and nothing else deletes it.
        unsafe { c::WebPDemuxDelete(self.demuxer.as_ptr()) }
    }
}

/// # Safety
/// `data` must be within a file that is borrowed for `'a`.
unsafe fn part_of_file<'a>(data: c::WebPData) -> &'a [u8] {
    if data.size == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts(data.bytes, data.size) }
}

/// Decodes the image in `data` to RGB rows, `stride` bytes apart, at the start of `pixels`.
pub(super) fn decode(data: &[u8], pixels: &mut [u8], stride: usize) -> Result<(), Failure> {
    let Ok(mut config) = c::WebPDecoderConfig::new() else {
        unreachable!("the bindings and the library have the same ABI version");
    };
    config.output.colorspace = c::WEBP_CSP_MODE::MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = c::WebPRGBABuffer {
        rgba: pixels.as_mut_ptr(),
        stride: i32::try_from(stride).map_err(|_| Failure::OutOfMemory)?,
        size: pixels.len(),
    };
    // SAFETY: both buffers are valid for the given lengths. libwebp checks the image size against the
    // stride and the output length before it writes. It starts no thread.
    let status = unsafe { c::WebPDecode(data.as_ptr(), data.len(), &raw mut config) };
    match status {
        c::VP8StatusCode::VP8_STATUS_OK => Ok(()),
        c::VP8StatusCode::VP8_STATUS_OUT_OF_MEMORY => Err(Failure::OutOfMemory),
        c::VP8StatusCode::VP8_STATUS_SUSPENDED | c::VP8StatusCode::VP8_STATUS_NOT_ENOUGH_DATA => {
            Err(Failure::Truncated)
        }
        _ => Err(Failure::Corrupt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STILL: &[u8] = include_bytes!("../../../../tests/decode_offset_frame.webp");

    #[test]
    fn canvas_frame_and_chunks_are_read() {
        let container = Container::parse(STILL).unwrap();
        assert_eq!(container.canvas(), (3, 1));
        let frame = container.first_frame().unwrap();
        assert_eq!((frame.left, frame.top), (2, 0));
        assert!(
            STILL
                .windows(frame.data.len())
                .any(|part| part == frame.data)
        );
        assert_eq!(container.chunk(c"EXIF"), None);
    }

    #[test]
    fn the_decoder_stays_within_its_output() {
        let data = Container::parse(STILL).unwrap().first_frame().unwrap().data;
        let mut pixels = [7; 5];
        assert_eq!(decode(data, &mut pixels[..3], 3), Ok(()));
        assert_eq!(pixels, [200, 100, 50, 7, 7]);
        for (name, data, length, stride) in [
            ("output too small", data, 2, 3),
            ("stride too small", data, 3, 2),
            ("truncated", &data[..data.len() / 2], 3, 3),
            ("empty", &[][..], 3, 3),
        ] {
            let mut pixels = [7; 3];
            assert!(
                decode(data, &mut pixels[..length], stride).is_err(),
                "{name}"
            );
            assert_eq!(pixels, [7; 3], "{name}");
        }
    }

    #[test]
    fn invalid_files_are_refused() {
        for file in [
            &b""[..],
            b"RIFF",
            b"RIFF\x04\0\0\0WEBP",
            &STILL[..STILL.len() - 1],
        ] {
            assert!(Container::parse(file).is_none(), "{}", file.escape_ascii());
        }
    }
}
