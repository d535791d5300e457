//! How many bytes of media one request may still hold.
//!
//! What is fetched is claimed as it arrives, and stays claimed for as long as the request
//! lives; a fetch that fails gives back all that it had claimed.
//!
//! Invariant: claims never sum to more than the budget, whichever threads make them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::FetchError;

/// The bytes that a request may still take up, shared by all its fetches.
#[derive(Debug)]
pub struct ByteBudget(AtomicU64);

impl ByteBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// The bytes that are left.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, or nothing if fewer are left. Says whether it did.
    #[must_use]
    pub fn claim(&self, bytes: u64) -> bool {
        // Relaxed: the number guards no other memory.
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            })
            .is_ok()
    }

    /// Gives back what was claimed.
    pub fn release(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes what is in memory already; `what` names it in the error.
    ///
    /// # Errors
    ///
    /// Fewer than `bytes` are left; none are taken.
    pub fn charge_existing(&self, bytes: u64, what: &str) -> Result<(), FetchError> {
        if self.claim(bytes) {
            return Ok(());
        }
        Err(FetchError::OverBudget {
            what: what.to_owned(),
        })
    }
}

/// What one fetch has claimed so far. Dropped, it gives all back.
pub(super) struct Claim<'a> {
    budget: &'a ByteBudget,
    bytes: u64,
}

impl<'a> Claim<'a> {
    pub(super) fn new(budget: &'a ByteBudget) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Claims `bytes` more. Says whether they could be had.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        let had = self.budget.claim(bytes);
        if had {
            self.bytes += bytes;
        }
        had
    }

    /// The fetch succeeded, and needs no more than `bytes`: the request holds them from now on.
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
    fn a_claim_is_whole_or_nothing() {
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
    fn what_exists_is_charged_by_name() {
        let budget = ByteBudget::new(10);
        budget.charge_existing(10, "image 0").unwrap();
        let error = budget.charge_existing(1, "image 1").unwrap_err();
        assert_eq!(
            "media fetch: image 1: exceeds the request media byte budget",
            error.to_string()
        );
    }

    #[test]
    fn a_failed_fetch_gives_back_and_a_good_one_keeps() {
        let budget = ByteBudget::new(10);
        let mut failed = Claim::new(&budget);
        assert!(failed.grow(4) && failed.grow(5) && !failed.grow(2));
        assert_eq!(1, budget.remaining());
        drop(failed);
        assert_eq!(10, budget.remaining());

        let mut good = Claim::new(&budget);
        assert!(good.grow(9));
        good.keep(6);
        assert_eq!(4, budget.remaining());
    }

    /// Eight threads fight for 1000 bytes, three at a time: exactly 333 win.
    #[test]
    fn threads_never_claim_more_than_there_is() {
        let budget = ByteBudget::new(1000);
        let won: usize = thread::scope(|scope| {
            let fighters: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..200).filter(|_| budget.claim(3)).count()))
                .collect();
            fighters.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert_eq!((333, 1), (won, budget.remaining()));
    }
}
