//! The budget of a request: the number of media bytes that it may hold.
//!
//! Fetched bytes are claimed as they arrive and stay claimed while the request lives. A failed fetch
//! releases everything that it claimed.
//!
//! Invariant: the claims of all threads never sum to more than the budget.

use std::sync::atomic::{AtomicU64, Ordering};

use super::FetchError;

/// The number of bytes that a request may still claim, shared by all its fetches.
#[derive(Debug)]
pub struct ByteBudget(AtomicU64);

impl ByteBudget {
    /// A budget of `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// The number of bytes left.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Claims `bytes`, or nothing if fewer are left. Returns whether it claimed them.
    #[must_use]
    pub fn claim(&self, bytes: u64) -> bool {
        // Relaxed is enough, because the number protects no other memory.
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            })
            .is_ok()
    }

    /// Releases `bytes` that were claimed.
    pub fn release(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Claims bytes that are in memory already. `name` is their name in the error.
    ///
    /// # Errors
    ///
    /// If fewer than `bytes` are left. Then nothing is claimed.
    pub fn charge_existing(&self, bytes: u64, name: &str) -> Result<(), FetchError> {
        if self.claim(bytes) {
            return Ok(());
        }
        Err(FetchError::OverBudget {
            name: name.to_owned(),
        })
    }
}

/// The bytes that one fetch has claimed so far. Dropping it releases them.
pub(super) struct Claim<'a> {
    budget: &'a ByteBudget,
    bytes: u64,
}

impl<'a> Claim<'a> {
    pub(super) fn new(budget: &'a ByteBudget) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Claims `bytes` more. Returns whether that succeeded.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        let claimed = self.budget.claim(bytes);
        if claimed {
            self.bytes += bytes;
        }
        claimed
    }

    /// Ends a successful fetch: `bytes` stay claimed by the request, and the rest is released.
    pub(super) fn keep(mut self, bytes: u64) {
        self.bytes -= bytes;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteBudget, Claim};
    use std::thread;

    #[test]
    fn a_claim_takes_all_bytes_or_none() {
        let budget = ByteBudget::new(10);
        assert!(budget.claim(7));
        assert!(!budget.claim(4));
        assert_eq!(3, budget.remaining());
        assert!(budget.claim(3) && budget.claim(0) && !budget.claim(1));
        budget.release(10);
        assert_eq!(10, budget.remaining());
        assert!(!budget.claim(u64::MAX));
    }

    #[test]
    fn existing_bytes_are_charged_with_a_name() {
        let budget = ByteBudget::new(10);
        budget.charge_existing(10, "image 0").unwrap();
        let error = budget.charge_existing(1, "image 1").unwrap_err();
        assert_eq!(
            "media fetch: image 1: exceeds the request media byte budget",
            error.to_string()
        );
    }

    #[test]
    fn a_failed_fetch_releases_and_a_successful_one_keeps() {
        let budget = ByteBudget::new(10);
        let mut failed = Claim::new(&budget);
        assert!(failed.grow(4) && failed.grow(5) && !failed.grow(2));
        assert_eq!(1, budget.remaining());
        drop(failed);
        assert_eq!(10, budget.remaining());

        let mut successful = Claim::new(&budget);
        assert!(successful.grow(9));
        successful.keep(6);
        assert_eq!(4, budget.remaining());
    }

    /// Eight threads claim three bytes at a time from 1000: exactly 333 claims succeed.
    #[test]
    fn threads_never_claim_more_than_the_budget() {
        let budget = ByteBudget::new(1000);
        let succeeded: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..200).filter(|_| budget.claim(3)).count()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!((333, 1), (succeeded, budget.remaining()));
    }
}
