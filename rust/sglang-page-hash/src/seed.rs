//! Seeds: they separate the pages of different namespaces and salts in a shared cache.
//!
//! Chains for storage start from the namespace (extra key and salt), chains for events from the salt
//! alone. Each text of a namespace is hashed with its length, so different namespaces never give the
//! same bytes.
//!
//! Invariant: the default namespace has no seed, and its first page has no previous digest.

use sha2::{Digest, Sha256};

use crate::PageHash;

/// Version of the storage seed. Change it with the layout.
const NAMESPACE_TAG: &[u8] = b"sglang-cache-namespace-v1";

/// Version of the event seed, terminated by NUL.
const SALT_TAG: &[u8] = b"sglang-cache-salt-v1\0";

/// The seed for storage chains of a namespace; `None` for the default namespace.
#[must_use]
pub fn namespace_seed(extra_key: Option<&str>, cache_salt: Option<&str>) -> Option<PageHash> {
    if extra_key.is_none() && cache_salt.is_none() {
        return None;
    }
    let mut hasher = Sha256::new_with_prefix(NAMESPACE_TAG);
    for part in [extra_key, cache_salt] {
        match part {
            None => hasher.update([0]),
            Some(text) => {
                hasher.update([1]);
                hasher.update((text.len() as u64).to_le_bytes());
                hasher.update(text);
            }
        }
    }
    Some(PageHash::from(<[u8; 32]>::from(hasher.finalize())))
}

/// The seed for event chains of requests with a salt.
#[must_use]
pub fn cache_salt_seed(cache_salt: &str) -> PageHash {
    let hasher = Sha256::new_with_prefix(SALT_TAG).chain_update(cache_salt);
    PageHash::from(<[u8; 32]>::from(hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::{cache_salt_seed, namespace_seed};

    #[test]
    fn seeds_have_the_pinned_digests() {
        assert_eq!(
            "f5d0f785efe6042a4e4b0297a4d712917e1763c850835e93df58b373fd47fd2c",
            cache_salt_seed("tenant-a").to_string()
        );
        assert_eq!(
            "a6f1938021f59be4331d56bfd53d749754b4d491d90a96de4f0ae1141bb8fba1",
            namespace_seed(Some("lora-7"), None).unwrap().to_string()
        );
        assert_eq!(None, namespace_seed(None, None));
    }

    /// The seeds differ even if the concatenated texts of two namespaces are equal.
    #[test]
    fn different_namespaces_have_different_seeds() {
        let parts = [None, Some(""), Some("a"), Some("b"), Some("ab")];
        let mut seen = Vec::new();
        for extra_key in parts {
            for salt in parts {
                let seed = namespace_seed(extra_key, salt);
                assert!(!seen.contains(&seed), "{extra_key:?}, {salt:?}");
                seen.push(seed);
            }
        }
    }
}
