//! The identity of a piece of media: a 64-bit digest of its bytes as they arrived.
//!
//! Invariant: it depends on nothing but the bytes, and its value is a promise to
//! caches on other machines. It is not comparable with Python's SHA-256 `data_hash`.

/// First eight bytes of the BLAKE3 digest, read big-endian.
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
    fn vectors() {
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
