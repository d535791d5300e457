//! The LZW compression of GIF: codes of growing width, packed in blocks of up to 255 bytes.
//!
//! Invariant: accepts exactly the data that Pillow accepts. Pillow stops at the last pixel and ignores
//! later codes. An empty block does not end the data. After an early end code Pillow continues only
//! if the file has bytes that it has not loaded yet.

use super::super::memory::empty;
use super::error::DecodeError;
use super::format::Format;

const MAX_BITS: u32 = 12;
const TABLE_LEN: usize = 1 << MAX_BITS;

/// Pillow reads a file in pieces of this many bytes.
const PIECE: usize = 65_536;

/// Why the code reader cannot return a code.
enum Pause {
    /// The next block is not completely loaded.
    NeedBytes,
}

/// Reads codes from blocks.
struct Codes<'a> {
    data: &'a [u8],
    position: usize,
    loaded: usize,
    block: usize,
    bits: u32,
    bit_count: u32,
}

impl<'a> Codes<'a> {
    fn new(data: &'a [u8]) -> Self {
        Self {
            data,
            position: 0,
            loaded: 0,
            block: 0,
            bits: 0,
            bit_count: 0,
        }
    }

    fn next(&mut self, width: u32) -> Result<usize, Pause> {
        while self.bit_count < width {
            if self.block == 0 {
                self.open_block()?;
                continue;
            }
            self.bits |= u32::from(self.data[self.position]) << self.bit_count;
            self.bit_count += 8;
            self.position += 1;
            self.block -= 1;
        }
        let code = self.bits & ((1 << width) - 1);
        self.bits >>= width;
        self.bit_count -= width;
        Ok(code as usize)
    }

    fn open_block(&mut self) -> Result<(), Pause> {
        let loaded = &self.data[self.position..self.loaded];
        match loaded.split_first() {
            Some((&length, rest)) if rest.len() >= length.into() => {
                self.block = length.into();
                self.position += 1;
                Ok(())
            }
            _ => Err(Pause::NeedBytes),
        }
    }

    /// Loads one more piece. Returns false at the end of the file.
    fn load(&mut self) -> bool {
        let before = self.loaded;
        self.loaded = self.data.len().min(before + PIECE);
        self.loaded > before
    }
}

/// The dictionary: each code is a prefix (another code) and a last index.
struct Strings {
    last: [u8; TABLE_LEN],
    prefix: [u16; TABLE_LEN],
    next: usize,
    width: u32,
}

impl Strings {
    fn new(code_bits: u32) -> Self {
        Self {
            last: [0; TABLE_LEN],
            prefix: [0; TABLE_LEN],
            next: (1 << code_bits) + 2,
            width: code_bits + 1,
        }
    }

    fn reset(&mut self, code_bits: u32) {
        self.next = (1 << code_bits) + 2;
        self.width = code_bits + 1;
    }

    fn add(&mut self, prefix_code: usize, last: u8) {
        if self.next >= TABLE_LEN {
            return;
        }
        self.last[self.next] = last;
        self.prefix[self.next] = prefix_code as u16;
        if self.next == (1 << self.width) - 1 && self.width < MAX_BITS {
            self.width += 1;
        }
        self.next += 1;
    }
}

/// Expands `data`, which starts at the first block, to exactly `count` indices.
pub(super) fn expand(data: &[u8], code_bits: u8, count: usize) -> Result<Vec<u8>, DecodeError> {
    let code_bits = u32::from(code_bits);
    if code_bits > MAX_BITS {
        return Err(corrupt("the code size is over 12 bits"));
    }
    let mut codes = Codes::new(data);
    let mut strings = Strings::new(code_bits);
    let clear = 1 << code_bits;
    // The file size bounds the allocation: a code gives at most `TABLE_LEN` indices. The last code may
    // exceed `count`.
    let mut indices = empty(count.min(data.len().saturating_mul(TABLE_LEN)) + TABLE_LEN)?;
    let mut previous: Option<(usize, u8)> = None;
    loop {
        let code = match codes.next(strings.width) {
            Ok(code) => code,
            Err(Pause::NeedBytes) if codes.load() => continue,
            Err(Pause::NeedBytes) => return Err(truncated()),
        };
        if code == clear {
            strings.reset(code_bits);
            previous = None;
            continue;
        }
        if code == clear + 1 {
            if codes.load() {
                continue;
            }
            return Err(truncated());
        }
        let first = emit(&strings, code, clear, previous, &mut indices)?;
        if let Some((prefix_code, _)) = previous {
            strings.add(prefix_code, first);
        }
        previous = Some((code, first));
        if indices.len() >= count {
            indices.truncate(count);
            return Ok(indices);
        }
    }
}

/// Appends the string of `code` and returns its first index.
fn emit(
    strings: &Strings,
    code: usize,
    clear: usize,
    previous: Option<(usize, u8)>,
    indices: &mut Vec<u8>,
) -> Result<u8, DecodeError> {
    let start = indices.len();
    let mut prefix = code;
    match previous {
        None if code > clear => return Err(corrupt("its first code has no string")),
        Some(_) if code > strings.next => {
            return Err(corrupt("a code has no string yet"));
        }
        // The code being defined: the previous string followed by its own first index.
        Some((prefix_code, first)) if code == strings.next => {
            indices.push(first);
            prefix = prefix_code;
        }
        _ => {}
    }
    while prefix >= clear {
        if prefix >= TABLE_LEN || indices.len() - start >= TABLE_LEN {
            return Err(corrupt("a string that is too long"));
        }
        indices.push(strings.last[prefix]);
        prefix = strings.prefix[prefix].into();
    }
    indices.push(prefix as u8);
    indices[start..].reverse();
    Ok(prefix as u8)
}

fn corrupt(problem: &'static str) -> DecodeError {
    DecodeError::corrupt(Format::Gif, problem)
}

fn truncated() -> DecodeError {
    DecodeError::truncated(Format::Gif, "the first frame")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_expand_to_indices() {
        type Row<'a> = (&'a str, u8, &'a [u8], usize, Option<&'a [u8]>);
        // The first rows hold the codes clear, 0, 1 and end, of three bits each.
        #[rustfmt::skip]
        let rows: &[Row<'_>] = &[
            ("two literals", 2, &[2, 0x44, 0x0a, 0], 2, Some(&[0, 1])),
            ("stops at the last pixel", 2, &[2, 0x44, 0x0a, 0], 1, Some(&[0])),
            ("ends too early", 2, &[2, 0x44, 0x0a, 0], 3, None),
            ("split over blocks", 2, &[1, 0x44, 1, 0x0a, 0], 2, Some(&[0, 1])),
            ("an empty block is not the end", 2, &[1, 0x44, 0, 1, 0x0a], 2, Some(&[0, 1])),
            ("a truncated block", 2, &[3, 0x44, 0x0a], 2, None),
            ("a code refers to itself", 2, &[2, 0x8c, 0x01], 3, Some(&[1, 1, 1])),
            ("starts with an undefined code", 2, &[1, 0x34], 1, None),
            ("codes of 13 bits", 13, &[2, 0x44, 0x0a], 1, None),
            ("empty", 2, &[], 1, None),
        ];
        for (name, code_bits, data, count, expected) in rows {
            let indices = expand(data, *code_bits, *count);
            assert_eq!(indices.ok().as_deref(), *expected, "{name}");
        }
    }
}
