//! Strict base64: standard alphabet, with padding, canonical, without white space inside.
//!
//! White space is accepted only at the ends. Apart from that, different texts never decode to the
//! same bytes, so either the text or the bytes can be used as a key.
//!
//! Invariant: no character is skipped, and no missing padding is assumed.

use ::base64::{DecodeError, Engine as _, decoded_len_estimate, engine::general_purpose::STANDARD};

use super::memory::{OutOfMemory, empty};

/// The text could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Base64Error {
    /// The text is not strict base64.
    #[error("base64 decode error: {0}")]
    Text(#[from] DecodeError),
    /// The system refused memory for the bytes.
    #[error("base64 decode error: not enough memory for the decoded bytes")]
    OutOfMemory,
}

/// Decodes `encoded`.
///
/// # Errors
///
/// A character outside the alphabet (including white space inside), missing or misplaced
/// padding, bits after the last byte that are not zero, or too little memory.
pub fn base64_decode(encoded: &str) -> Result<Vec<u8>, Base64Error> {
    let text = encoded.trim();
    let room = empty(decoded_len_estimate(text.len()));
    let mut bytes = room.map_err(|OutOfMemory| Base64Error::OutOfMemory)?;
    STANDARD.decode_vec(text, &mut bytes)?;
    Ok(bytes)
}

/// The largest number of bytes that `encoded` can decode to, to reserve from a budget before
/// decoding.
#[must_use]
pub fn max_decoded_len(encoded: &str) -> usize {
    let text = encoded.trim().as_bytes();
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    (text.len().div_ceil(4) * 3).saturating_sub(padding.min(2))
}

#[cfg(test)]
mod tests {
    use super::{base64_decode, max_decoded_len};
    use ::base64::{Engine as _, engine::general_purpose::STANDARD};

    #[test]
    fn strict_base64_is_accepted() {
        #[rustfmt::skip]
        let cases: &[(&str, &str, &[u8])] = &[
            ("empty",                  "",               b""),
            ("only white space",       " \n",            b""),
            ("no padding needed",      "Zm9v",           b"foo"),
            ("one pad",                "Zm8=",           b"fo"),
            ("two pads",               "Zg==",           b"f"),
            ("plus and slash",         "+/+/",           b"\xfb\xff\xbf"),
            ("spaces at the ends",     " \t\r\nZm9v\n ", b"foo"),
            ("unicode space at an end", "\u{2003}Zm9v\u{a0}", b"foo"),
        ];
        for (name, text, expected) in cases {
            assert_eq!(
                Ok(*expected),
                base64_decode(text).as_deref().map_err(Clone::clone),
                "{name}"
            );
            assert_eq!(expected.len(), max_decoded_len(text), "{name}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        #[rustfmt::skip]
        let cases: &[(&str, &str)] = &[
            ("inner space",          "Zm 9v"),
            ("inner newline",        "Zm9v\nZm9v"),
            ("padding missing",      "Zg"),
            ("half the padding",     "Zg="),
            ("too much padding",     "Zm8=="),
            ("padding in the middle", "Zg==Zm9v"),
            ("only padding",         "===="),
            ("one letter",           "Z"),
            ("trailing bits",        "Zh=="),
            ("url-safe letters",     "-_-_"),
            ("not ASCII",            "Zm9ü"),
            ("a data URL",           "data:;base64,Zg=="),
        ];
        for (name, text) in cases {
            let error = base64_decode(text).expect_err(name).to_string();
            assert!(
                error.starts_with("base64 decode error: "),
                "{name}: {error}"
            );
        }
    }

    proptest::proptest! {
        /// Encoded bytes decode to the original, and the reservation is exact.
        #[test]
        fn round_trip(data: Vec<u8>) {
            let text = STANDARD.encode(&data);
            proptest::prop_assert_eq!(max_decoded_len(&text), data.len());
            proptest::prop_assert_eq!(base64_decode(&text), Ok(data));
        }

        /// No text decodes to more bytes than were reserved for it.
        #[test]
        fn reservation_is_a_bound(text: String) {
            if let Ok(data) = base64_decode(&text) {
                proptest::prop_assert!(data.len() <= max_decoded_len(&text));
            }
        }
    }
}
