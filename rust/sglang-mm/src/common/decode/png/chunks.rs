//! Reads the chunks of a PNG file and checks that each is well formed.
//!
//! The file has three parts. Before the pixel data every chunk is read and its checksum compared. The
//! data chunks are returned in pieces, without a checksum. The chunks after the data are read without
//! checksums, and there a file that ends between chunks or inside a chunk header is accepted.

use super::super::cursor::{Cursor, u32_be};
use super::super::error::DecodeError;
use super::super::sniff::PNG_SIGNATURE;
use super::error::{corrupt, truncated};
use super::facts::{Facts, Step};

/// Pillow reads pixel data in pieces of at most this many bytes.
const PIECE: usize = 65_536;

/// A chunk's header. The cursor is at its body.
#[derive(Clone, Copy)]
struct Head {
    kind: [u8; 4],
    length: usize,
}

/// A reader of the chunks.
pub(super) struct Chunks<'a> {
    cursor: Cursor<'a>,
    pub(super) facts: Facts<'a>,
    /// Bytes of the current data chunk that were not returned yet.
    left: usize,
    /// The chunks after the pixel data were read.
    ended: bool,
    /// More frames follow, as declared before the first data chunk. Later declarations are ignored.
    animated: bool,
    /// The header of the chunk that ended the pixel data. It was read but not handled yet.
    pending: Option<Head>,
}

impl<'a> Chunks<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self {
            cursor: Cursor::at(bytes, PNG_SIGNATURE.len()),
            facts: Facts::default(),
            left: 0,
            ended: false,
            animated: false,
            pending: None,
        }
    }

    /// Reads all chunks before the pixel data, and the header of the first data chunk.
    pub(super) fn read_to_data(&mut self) -> Result<(), DecodeError> {
        loop {
            let head = self.head()?.ok_or_else(|| truncated("a chunk"))?;
            let is_data = is_data(head.kind);
            if is_data && (self.facts.has_color() || head.kind == *b"fdAT") {
                self.left = self.open_data(head)?;
                self.animated = self.facts.is_animated();
                return Ok(());
            }
            if head.kind == *b"IEND" {
                return Err(corrupt("it has no pixel data"));
            }
            let body = self.body(head.length)?;
            self.facts.read(head.kind, body)?;
            let checksum = self.cursor.array().ok_or_else(|| truncated("a checksum"))?;
            if crc32(head.kind, body) != u32::from_be_bytes(checksum) {
                return Err(corrupt("a checksum before the pixel data"));
            }
        }
    }

    /// The next bytes of compressed pixel data. `None` at the end of the data chunks or of the file.
    pub(super) fn next_piece(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        while self.left == 0 {
            self.cursor.skip(4);
            let Some(head) = self.head()? else {
                return Ok(None);
            };
            if !is_data(head.kind) && head.kind != *b"DDAT" {
                self.pending = Some(head);
                return Ok(None);
            }
            self.left = self.open_data(head)?;
        }
        let piece = self.cursor.read(self.left.min(PIECE));
        self.left -= self.left.min(PIECE);
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }

    /// Skips the pixel data and reads the chunks after it, unless that was done before.
    pub(super) fn skip_data(&mut self) -> Result<(), DecodeError> {
        while !self.ended {
            match self.next_piece() {
                Ok(Some(_)) => {}
                Ok(None) => self.read_to_end()?,
                // A damaged chunk here only ends the file: it cannot damage pixels that are complete.
                Err(_) => self.ended = true,
            }
        }
        Ok(())
    }

    /// Reads the chunks after the pixel data.
    pub(super) fn read_to_end(&mut self) -> Result<(), DecodeError> {
        self.ended = true;
        self.cursor.skip(self.left);
        loop {
            let Some(head) = self.pending.take().or_else(|| self.head_after_data()) else {
                return Ok(());
            };
            let next_frame = head.kind == *b"fcTL" && self.animated;
            if head.kind == *b"IEND" || next_frame {
                return Ok(());
            }
            if is_data(head.kind) {
                let length = self.open_data(head)?;
                self.body(length)?;
                continue;
            }
            let body = self.body(head.length)?;
            self.facts.read(head.kind, body)?;
        }
    }

    /// Skips a checksum and reads the chunk header after it. An invalid chunk name ends the file.
    fn head_after_data(&mut self) -> Option<Head> {
        self.cursor.skip(4);
        self.head().unwrap_or(None)
    }

    /// The next chunk's header. `None` if the file ends before the header is complete.
    fn head(&mut self) -> Result<Option<Head>, DecodeError> {
        let Some(head) = self.cursor.take(8) else {
            return Ok(None);
        };
        let length = u32_be(head, 0).expect("the header has eight bytes") as usize;
        let kind = [head[4], head[5], head[6], head[7]];
        let named = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if !kind.iter().all(named) {
            return Err(corrupt("a chunk with an invalid name"));
        }
        Ok(Some(Head { kind, length }))
    }

    fn body(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        self.cursor.take(length).ok_or_else(|| truncated("a chunk"))
    }

    /// The length of the pixel data in the chunk at the cursor. `fdAT` data starts with a sequence number.
    fn open_data(&mut self, head: Head) -> Result<usize, DecodeError> {
        if head.kind != *b"fdAT" {
            self.facts.begin_data();
            return Ok(head.length);
        }
        if head.length < 4 {
            return Err(truncated("the data of a frame"));
        }
        let number = self
            .cursor
            .array()
            .ok_or_else(|| truncated("the data of a frame"))?;
        self.facts
            .next_in_sequence(u32::from_be_bytes(number), Step::Data)?;
        self.facts.begin_data();
        Ok(head.length - 4)
    }
}

fn is_data(kind: [u8; 4]) -> bool {
    matches!(&kind, b"IDAT" | b"fdAT")
}

fn crc32(kind: [u8; 4], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&kind);
    crc.update(body);
    crc.finalize()
}
