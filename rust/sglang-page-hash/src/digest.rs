//! A digest and its two external forms: hex text and event id.
//!
//! Invariant: every digest has exactly one text, in lower case.

use std::{fmt, str::FromStr};

/// The digest of a page and of all pages before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageHash([u8; 32]);

impl PageHash {
    /// The raw bytes, as hashed into the next page of the chain.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The id used in cache events: the first eight bytes as a signed big-endian integer.
    #[must_use]
    pub fn event_id(&self) -> i64 {
        let mut head = [0; 8];
        head.copy_from_slice(&self.0[..8]);
        i64::from_be_bytes(head)
    }
}

impl From<[u8; 32]> for PageHash {
    fn from(digest: [u8; 32]) -> Self {
        Self(digest)
    }
}

/// Writes 64 lower-case hex digits.
impl fmt::Display for PageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageHash({self})")
    }
}

/// The text is not a page hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a page hash is 64 hex digits, got {0:?}")]
pub struct NotADigest(pub String);

/// Reads 64 hex digits of either case.
impl FromStr for PageHash {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let digits: Option<Vec<u8>> = text
            .chars()
            .map(|char| char.to_digit(16).map(|digit| digit as u8))
            .collect();
        let mut digest = [0; 32];
        match digits {
            Some(digits) if digits.len() == 2 * digest.len() => {
                for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
                    *byte = pair[0] << 4 | pair[1];
                }
                Ok(Self(digest))
            }
            _ => Err(NotADigest(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PageHash;

    #[test]
    fn text_is_lower_case_and_either_case_is_read() {
        let low = "34fb5c825de7ca4aea6e712f19d439c1da0c92c37b423936c5f618545ca4fa1f";
        let hash: PageHash = low.parse().unwrap();
        assert_eq!(low, hash.to_string());
        assert_eq!(Ok(hash), low.to_uppercase().parse());
        assert_eq!(Ok(PageHash::from(*hash.as_bytes())), low.parse());
    }

    #[test]
    fn invalid_texts_are_refused() {
        let digits = "a".repeat(64);
        #[rustfmt::skip]
        let cases = [
            ("empty",              String::new()),
            ("one digit short",    digits[1..].to_owned()),
            ("one digit too many", format!("{digits}a")),
            ("0x prefix",          format!("0x{}", &digits[2..])),
            ("letter beyond f",    digits.replacen('a', "g", 1)),
            ("trailing space",     format!("{} ", &digits[1..])),
            ("full-width digit",   format!("{}\u{ff11}", &digits[1..])),
        ];
        for (name, text) in cases {
            assert!(text.parse::<PageHash>().is_err(), "{name}");
        }
    }
}
