//! Reads a stream whose declared length is not trusted.
//!
//! Bytes are charged to the budget as they arrive. So a stream that fits is always accepted, with
//! any number of threads that share the budget. At most one step per stream is in memory before it
//! is charged. One byte beyond the cap is read, so that a longer stream is an error and is not
//! truncated.
//!
//! Invariant: memory grows with the bytes received, not with the declared length.

use std::io::{self, Read};

use super::{
    FetchError,
    budget::{ByteBudget, Claim},
};

/// Bytes that are read between two charges.
const STEP: u64 = 256 << 10;

/// Why reading stopped before the end of the stream.
#[derive(Debug)]
pub(super) enum Stopped {
    Io(io::Error),
    OverCap,
    OverBudget,
    OutOfMemory,
}

impl Stopped {
    /// The error for the source called `name`.
    pub(super) fn into_fetch_error(self, name: String, cap: u64) -> FetchError {
        match self {
            Self::Io(source) => FetchError::Read { name, source },
            Self::OverCap => FetchError::TooLarge { name, cap },
            Self::OverBudget => FetchError::OverBudget { name },
            Self::OutOfMemory => FetchError::OutOfMemory { name },
        }
    }
}

/// Reads all of `reader`, which may have at most `cap` bytes.
pub(super) fn read(
    reader: &mut impl Read,
    cap: u64,
    budget: &ByteBudget,
) -> Result<Vec<u8>, Stopped> {
    let mut claim = Claim::new(budget);
    let mut bytes = Vec::new();
    loop {
        let step = STEP.min(cap + 1 - bytes.len() as u64);
        bytes
            .try_reserve(step as usize)
            .map_err(|_| Stopped::OutOfMemory)?;
        let got = reader
            .by_ref()
            .take(step)
            .read_to_end(&mut bytes)
            .map_err(Stopped::Io)? as u64;
        let have = bytes.len() as u64;
        if have > cap {
            return Err(Stopped::OverCap);
        }
        if !claim.grow(got) {
            return Err(Stopped::OverBudget);
        }
        if got < step {
            claim.keep(have);
            return Ok(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{STEP, Stopped, read};
    use crate::common::fetch::ByteBudget;
    use std::io::{self, Read};

    /// Returns its bytes in pieces, then ends or fails.
    struct Stream {
        left: u64,
        piece: usize,
        fails: bool,
    }

    impl Read for Stream {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.left == 0 && self.fails {
                return Err(io::Error::other("broken"));
            }
            let len = buffer.len().min(self.piece).min(self.left as usize);
            buffer[..len].fill(7);
            self.left -= len as u64;
            Ok(len)
        }
    }

    fn outcome(result: &Result<Vec<u8>, Stopped>) -> &'static str {
        match result {
            Ok(_) => "ok",
            Err(Stopped::Io(_)) => "broken",
            Err(Stopped::OverCap) => "cap",
            Err(Stopped::OverBudget) => "budget",
            Err(Stopped::OutOfMemory) => "memory",
        }
    }

    #[test]
    fn cap_and_budget_are_exact() {
        #[rustfmt::skip]
        let cases = [
            ("empty",                          0,            10,       10,       "ok"),
            ("exactly the cap",                10,           10,       10,       "ok"),
            ("one byte over the cap",          11,           10,       100,      "cap"),
            ("over cap and budget",            11,           10,       10,       "cap"),
            ("one byte over the budget",       11,           20,       10,       "budget"),
            ("no budget, empty",               0,            10,       0,        "ok"),
            ("no budget",                      1,            10,       0,        "budget"),
            ("cap 0, empty",                   0,            0,        0,        "ok"),
            ("cap 0",                          1,            0,        9,        "cap"),
            ("exactly one step",               STEP,         2 * STEP, 2 * STEP, "ok"),
            ("one byte over a step",           STEP + 1,     2 * STEP, 2 * STEP, "ok"),
            ("cap at the end of a step",       2 * STEP,     2 * STEP, 2 * STEP, "ok"),
            ("over a cap at a step's end",     2 * STEP + 1, 2 * STEP, 9 * STEP, "cap"),
            ("budget at the end of a step",    2 * STEP,     9 * STEP, 2 * STEP, "ok"),
            ("over a budget at a step's end",  2 * STEP + 1, 9 * STEP, 2 * STEP, "budget"),
        ];
        for (name, len, cap, allowed, expected) in cases {
            for piece in [1_000, usize::MAX] {
                let budget = ByteBudget::new(allowed);
                let mut stream = Stream {
                    left: len,
                    piece,
                    fails: false,
                };
                let result = read(&mut stream, cap, &budget);
                assert_eq!(expected, outcome(&result), "{name}, in pieces of {piece}");
                let held = result.map_or(0, |bytes| bytes.len() as u64);
                assert_eq!(
                    allowed - held,
                    budget.remaining(),
                    "{name}, in pieces of {piece}"
                );
            }
        }
    }

    #[test]
    fn at_most_one_byte_over_the_cap_is_read() {
        let mut endless = Stream {
            left: u64::MAX,
            piece: usize::MAX,
            fails: false,
        };
        let budget = ByteBudget::new(u64::MAX);
        assert_eq!("cap", outcome(&read(&mut endless, 3 * STEP, &budget)));
        assert_eq!(3 * STEP + 1, u64::MAX - endless.left);
    }

    proptest::proptest! {
        /// After any failure, bytes that were not returned are released.
        #[test]
        fn failures_release_the_budget(
            len in 0..3 * STEP, cap in 0..3 * STEP, allowed in 0..3 * STEP, piece in 1_usize..400_000, fails: bool,
        ) {
            let budget = ByteBudget::new(allowed);
            let result = read(&mut Stream { left: len, piece, fails }, cap, &budget);
            let fits = len <= cap && len <= allowed && !fails;
            proptest::prop_assert_eq!(fits, result.is_ok());
            let held = result.map_or(0, |bytes| bytes.len() as u64);
            proptest::prop_assert_eq!(if fits { len } else { 0 }, held);
            proptest::prop_assert_eq!(allowed - held, budget.remaining());
        }
    }
}
