//! Names of requests.
//!
//! A client may choose the name of its request, and use it again later. What travels to
//! the scheduler is unique: the client's name with a suffix, so that a late frame of an
//! ended request never reaches its successor.
//!
//! Invariant: the string is the identity; the shard that it hashes to only divides work.

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

/// How health probes begin; the scheduler knows them by it.
pub const HEALTH_CHECK_PREFIX: &str = "HEALTH_CHECK_";

/// `#`, eight digits of this process and eight of a counter.
const SUFFIX: usize = 17;

static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
static PROCESS: LazyLock<u32> = LazyLock::new(|| Uuid::new_v4().as_fields().0);
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The name of one request, cheap to clone. It is found in a map by its text.
#[derive(Clone, Debug)]
pub struct Rid {
    name: Arc<str>,
    /// Bytes of it that the client sees.
    client: usize,
}

impl Rid {
    /// A fresh name for a client that gave none: a UUID of 32 hexadecimal digits.
    #[must_use]
    pub fn mint() -> Self {
        Self::whole(Uuid::new_v4().simple().to_string())
    }

    /// A fresh name for a probe of the scheduler's health.
    #[must_use]
    pub fn health_check() -> Self {
        Self::whole(format!("{HEALTH_CHECK_PREFIX}{}", Uuid::new_v4().simple()))
    }

    /// A name for the client's `name`, which other requests before it may have had.
    #[must_use]
    pub fn from_client(name: &str) -> Self {
        let mut unique = String::with_capacity(name.len() + SUFFIX);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        write!(unique, "{name}#{:08x}{count:08x}", *PROCESS).expect("strings take everything");
        Self {
            name: unique.into(),
            client: name.len(),
        }
    }

    /// A name as the scheduler sent it; `client_facing` is the whole of it.
    #[must_use]
    pub fn whole(name: String) -> Self {
        Self {
            client: name.len(),
            name: name.into(),
        }
    }

    /// The name that the scheduler knows.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The name that the client knows.
    #[must_use]
    pub fn client_facing(&self) -> &str {
        &self.name[..self.client]
    }

    /// The shard, of `shards`, that has this request.
    ///
    /// # Panics
    ///
    /// When there are no shards.
    #[must_use]
    pub fn shard(&self, shards: usize) -> usize {
        shard_of(&self.name, shards)
    }
}

/// As [`Rid::shard`], for a name as it stands in a frame.
///
/// # Panics
///
/// When there are no shards.
#[must_use]
pub fn shard_of(name: &str, shards: usize) -> usize {
    (SEED.hash_one(name) % shards as u64) as usize
}

impl PartialEq for Rid {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Rid {}

impl Hash for Rid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Borrow<str> for Rid {
    fn borrow(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::{HEALTH_CHECK_PREFIX, Rid, shard_of};

    #[test]
    fn minted_names_are_32_digits() {
        let rid = Rid::mint();
        assert_eq!(32, rid.as_str().len());
        let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        assert!(rid.as_str().chars().all(digit), "{rid}");
        assert_eq!(rid.as_str(), rid.client_facing());
        let probe = Rid::health_check();
        assert!(probe.as_str().starts_with(HEALTH_CHECK_PREFIX), "{probe}");
    }

    /// Whatever a client calls its request, it sees that name and nobody else has it.
    #[test]
    fn client_names_are_made_unique() {
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
    fn a_request_is_found_by_the_text_of_its_name() {
        let rid = Rid::from_client("x");
        let map = HashMap::from([(rid.clone(), 7)]);
        assert_eq!(Some(&7), map.get(rid.as_str()));
        assert_eq!(rid, Rid::whole(rid.to_string()));
    }

    #[test]
    fn names_spread_over_all_shards() {
        let mut seen = [0; 8];
        for _ in 0..800 {
            let rid = Rid::mint();
            assert_eq!(rid.shard(8), shard_of(rid.as_str(), 8));
            seen[rid.shard(8)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 20), "{seen:?}");
    }
}
