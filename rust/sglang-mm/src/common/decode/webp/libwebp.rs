//! The border to C: libwebp's demultiplexer and its decoder, each behind a safe call.
//!
//! Invariant: what is handed out borrows from the file or belongs to the caller, and libwebp keeps
//! no pointer once a call or a [`Container`] has ended.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

use libwebp_sys as c;

/// The chunks of a file that is whole and well formed.
pub(super) struct Container<'a> {
    demuxer: NonNull<c::WebPDemuxer>,
    file: PhantomData<&'a [u8]>,
}

/// The first picture of a file, and where it lies on the canvas.
pub(super) struct Frame<'a> {
    pub(super) data: &'a [u8],
    pub(super) left: usize,
    pub(super) top: usize,
}

/// Why there are no pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    OutOfMemory,
    Truncated,
    Corrupt,
}

impl<'a> Container<'a> {
    /// None if libwebp refuses the file.
    pub(super) fn of(file: &'a [u8]) -> Option<Self> {
        let data = c::WebPData {
            bytes: file.as_ptr(),
            size: file.len(),
        };
        let version = c::WEBP_DEMUX_ABI_VERSION as i32;
        // SAFETY: `data` is valid for the call, and the bytes that it points to for `'a`, which the
        // demuxer does not outlive. No state is asked for, and a partial file is refused.
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
        // SAFETY: the demuxer lives, and zeros are a valid iterator to write to.
        let found = unsafe { c::WebPDemuxGetFrame(self.demuxer.as_ptr(), 1, frame.as_mut_ptr()) };
        // SAFETY: zeros are valid for each of its fields, and C wrote only valid values over them.
        let mut frame = unsafe { frame.assume_init() };
        let placed = (found != 0).then(|| Frame {
            // SAFETY: the fragment is a part of the file.
            data: unsafe { part_of_file(frame.fragment) },
            left: frame.x_offset as usize,
            top: frame.y_offset as usize,
        });
        // SAFETY: the iterator was set by the call above or is all zeros.
        unsafe { c::WebPDemuxReleaseIterator(&raw mut frame) };
        placed
    }

    /// The body of the first chunk of that name, among those that the header announces.
    pub(super) fn chunk(&self, name: &CStr) -> Option<&'a [u8]> {
        let mut chunk = MaybeUninit::<c::WebPChunkIterator>::zeroed();
        let demuxer = self.demuxer.as_ptr();
        // SAFETY: the demuxer lives, the name has four letters, and zeros are a valid iterator.
        let found = unsafe { c::WebPDemuxGetChunk(demuxer, name.as_ptr(), 1, chunk.as_mut_ptr()) };
        // SAFETY: zeros are valid for each of its fields, and C wrote only valid values over them.
        let mut chunk = unsafe { chunk.assume_init() };
        // SAFETY: a chunk is a part of the file.
        let body = (found != 0).then(|| unsafe { part_of_file(chunk.chunk) });
        // SAFETY: the iterator was set by the call above or is all zeros.
        unsafe { c::WebPDemuxReleaseChunkIterator(&raw mut chunk) };
        body
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made by libwebp, and nothing else deletes it.
        unsafe { c::WebPDemuxDelete(self.demuxer.as_ptr()) }
    }
}

/// # Safety
/// `data` must lie within a file that lives for `'a`.
unsafe fn part_of_file<'a>(data: c::WebPData) -> &'a [u8] {
    if data.size == 0 {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { slice::from_raw_parts(data.bytes, data.size) }
}

/// Decode the picture in `data` to RGB rows, `stride` bytes apart, at the start of `pixels`.
pub(super) fn decode(data: &[u8], pixels: &mut [u8], stride: usize) -> Result<(), Failure> {
    let Ok(mut config) = c::WebPDecoderConfig::new() else {
        unreachable!("the library is the one that its bindings were made for");
    };
    config.output.colorspace = c::WEBP_CSP_MODE::MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = c::WebPRGBABuffer {
        rgba: pixels.as_mut_ptr(),
        stride: i32::try_from(stride).map_err(|_| Failure::OutOfMemory)?,
        size: pixels.len(),
    };
    // SAFETY: both buffers are valid for the lengths beside them. libwebp compares the size of the
    // picture with the stride and the length of the output before it writes, on the caller's thread.
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
    fn a_file_is_taken_apart() {
        let container = Container::of(STILL).unwrap();
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
    fn c_writes_what_it_was_given_and_no_more() {
        let data = Container::of(STILL).unwrap().first_frame().unwrap().data;
        let mut pixels = [7; 5];
        assert_eq!(decode(data, &mut pixels[..3], 3), Ok(()));
        assert_eq!(pixels, [200, 100, 50, 7, 7]);
        for (name, data, length, stride) in [
            ("no room", data, 2, 3),
            ("a row is too short", data, 3, 2),
            ("cut", &data[..data.len() / 2], 3, 3),
            ("nothing", &[][..], 3, 3),
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
    fn what_is_no_file_is_refused() {
        for file in [
            &b""[..],
            b"RIFF",
            b"RIFF\x04\0\0\0WEBP",
            &STILL[..STILL.len() - 1],
        ] {
            assert!(Container::of(file).is_none(), "{}", file.escape_ascii());
        }
    }
}
