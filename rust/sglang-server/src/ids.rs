//! Request ids.
//!
//! A client may choose the id of its request and reuse it later. The scheduler sees a unique
//! id: the client's id and a suffix. So a late frame of an ended request never reaches a
//! later request with the same client id.
//!
//! Invariant: the string is the identity. Its hash only chooses the shard.

use std::{
    borrow::Borrow,
    fmt::{self, Write as _},
    hash::{BuildHasher as _, Hash, Hasher, RandomState},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use uuid::Uuid;

/// Prefix of the ids of health probes, by which the scheduler recognises them.
pub(crate) const HEALTH_CHECK_PREFIX: &str = "HEALTH_CHECK_";

/// Length of the suffix: `#`, eight digits of the process and eight of a counter.
const SUFFIX: usize = 17;

static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
static PROCESS: LazyLock<u32> = LazyLock::new(|| Uuid::new_v4().as_fields().0);
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The id of one request, cheap to clone. A map with `Rid` keys can be searched by `str`.
#[derive(Clone, Debug)]
pub struct Rid {
    text: Arc<str>,
    /// Length of the client's part, in bytes.
    client: usize,
}

impl Rid {
    /// A new id for a request whose client chose none: a UUID of 32 hexadecimal digits.
    #[must_use]
    pub fn mint() -> Self {
        Self::whole(Uuid::new_v4().simple().to_string())
    }

    /// A new id for a probe of the scheduler's health.
    #[must_use]
    pub fn health_check() -> Self {
        Self::whole(format!("{HEALTH_CHECK_PREFIX}{}", Uuid::new_v4().simple()))
    }

    /// A unique id for the id that the client chose. Earlier requests may have had the same.
    #[must_use]
    pub fn from_client(id: &str) -> Self {
        let mut unique = String::with_capacity(id.len() + SUFFIX);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        write!(unique, "{id}#{:08x}{count:08x}", *PROCESS).expect("a string takes any text");
        Self {
            text: unique.into(),
            client: id.len(),
        }
    }

    /// An id as the scheduler sent it, or one that has no suffix. All of it is the client's
    /// part.
    #[must_use]
    pub fn whole(id: String) -> Self {
        Self {
            client: id.len(),
            text: id.into(),
        }
    }

    /// The id that the scheduler sees.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The id that the client sees.
    #[must_use]
    pub fn client_facing(&self) -> &str {
        &self.text[..self.client]
    }

    /// Which of `shards` shards has this request.
    ///
    /// # Panics
    ///
    /// When `shards` is 0.
    #[must_use]
    pub fn shard(&self, shards: usize) -> usize {
        shard_of(&self.text, shards)
    }
}

/// Like [`Rid::shard`], for the text of an id in a frame.
///
/// # Panics
///
/// When `shards` is 0.
#[must_use]
pub(crate) fn shard_of(id: &str, shards: usize) -> usize {
    (SEED.hash_one(id) % shards as u64) as usize
}

impl PartialEq for Rid {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Rid {}

impl Hash for Rid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Borrow<str> for Rid {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::{HEALTH_CHECK_PREFIX, Rid, shard_of};

    #[test]
    fn minted_ids_have_32_digits() {
        let rid = Rid::mint();
        assert_eq!(32, rid.as_str().len());
        let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        assert!(rid.as_str().chars().all(digit), "{rid}");
        assert_eq!(rid.as_str(), rid.client_facing());
        let probe = Rid::health_check();
        assert!(probe.as_str().starts_with(HEALTH_CHECK_PREFIX), "{probe}");
    }

    /// The client sees the id that it chose, and the scheduler sees a different one each time.
    #[test]
    fn client_ids_are_made_unique() {
        for name in ["", "x", "a#0123456789abcdef", "ünïcödé", "x#"] {
            let rids: Vec<Rid> = (0..100).map(|_| Rid::from_client(name)).collect();
            let distinct: HashSet<&str> = rids.iter().map(Rid::as_str).collect();
            assert_eq!(100, distinct.len(), "{name}");
            for rid in &rids {
                assert_eq!(name, rid.client_facing());
                assert_eq!(name.len() + 17, rid.as_str().len());
            }
        }
    }

    #[test]
    fn a_map_entry_is_found_by_the_text_of_its_id() {
        let rid = Rid::from_client("x");
        let map = HashMap::from([(rid.clone(), 7)]);
        assert_eq!(Some(&7), map.get(rid.as_str()));
        assert_eq!(rid, Rid::whole(rid.to_string()));
    }

    #[test]
    fn ids_spread_over_all_shards() {
        let mut seen = [0; 8];
        for _ in 0..800 {
            let rid = Rid::mint();
            assert_eq!(rid.shard(8), shard_of(rid.as_str(), 8));
            seen[rid.shard(8)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 20), "{seen:?}");
    }
}
