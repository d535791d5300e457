//! The identity of a media file: a 64-bit digest of its encoded bytes.
//!
//! Invariant: the digest depends only on the bytes. Caches on other machines use it as a key, so
//! its value must never change. It is not comparable with Python's SHA-256 `data_hash`.

/// The first eight bytes of the BLAKE3 digest, read as big-endian.
#[must_use]
pub fn content_hash_u64(data: &[u8]) -> u64 {
    let mut head = [0; 8];
    head.copy_from_slice(&blake3::hash(data).as_bytes()[..8]);
    u64::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use super::content_hash_u64;

    #[test]
    fn hashes_have_the_pinned_values() {
        let counting: Vec<u8> = (0..5).flat_map(|_| 0..=255).collect();
        #[rustfmt::skip]
        let cases: &[(&str, &[u8], u64)] = &[
            ("empty",              b"",       0xaf13_49b9_f5f9_a1a6),
            ("hello",              b"hello",  0xea8f_163d_b386_8292),
            ("more than one leaf", &counting, 0x7586_fa21_246e_8e17),
        ];
        for (name, data, expected) in cases {
            assert_eq!(*expected, content_hash_u64(data), "{name}");
        }
    }
}
