//! Reads a stream whose length nobody can be trusted about.
//!
//! Bytes are charged to the budget as they arrive, so what fits is always accepted, however
//! many threads share the budget; at most one step per stream is in memory before it is
//! charged. One byte past the cap is read, so that too long is an error and never a cut.
//!
//! Invariant: memory follows what arrives, never what was announced.

use std::io::{self, Read};

use super::{
    FetchError,
    budget::{ByteBudget, Claim},
};

/// How much is read between two charges.
const STEP: u64 = 256 << 10;

/// Why a stream was not read to its end.
#[derive(Debug)]
pub(super) enum Stopped {
    Io(io::Error),
    OverCap,
    OverBudget,
    OutOfMemory,
}

impl Stopped {
    /// The same, told of `what`.
    pub(super) fn reading(self, what: String, cap: u64) -> FetchError {
        match self {
            Self::Io(source) => FetchError::Read { what, source },
            Self::OverCap => FetchError::TooLarge { what, cap },
            Self::OverBudget => FetchError::OverBudget { what },
            Self::OutOfMemory => FetchError::OutOfMemory { what },
        }
    }
}

/// All of `reader`, which may hold at most `cap` bytes.
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

    /// Gives its bytes in odd pieces, then ends or fails; counts what was asked of it.
    struct Stream {
        left: u64,
        piece: usize,
        fails: bool,
    }

    impl Read for Stream {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.left == 0 && self.fails {
                return Err(io::Error::other("torn"));
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
            Err(Stopped::Io(_)) => "torn",
            Err(Stopped::OverCap) => "cap",
            Err(Stopped::OverBudget) => "budget",
            Err(Stopped::OutOfMemory) => "memory",
        }
    }

    #[test]
    fn limits_are_exact() {
        #[rustfmt::skip]
        let cases = [
            ("nothing",                        0,            10,       10,       "ok"),
            ("the whole cap",                  10,           10,       10,       "ok"),
            ("one past the cap",               11,           10,       100,      "cap"),
            ("the cap is named first",         11,           10,       10,       "cap"),
            ("one past the budget",            11,           20,       10,       "budget"),
            ("no budget, nothing to read",     0,            10,       0,        "ok"),
            ("no budget",                      1,            10,       0,        "budget"),
            ("no cap, nothing to read",        0,            0,        0,        "ok"),
            ("no cap",                         1,            0,        9,        "cap"),
            ("exactly one step",               STEP,         2 * STEP, 2 * STEP, "ok"),
            ("one past a step",                STEP + 1,     2 * STEP, 2 * STEP, "ok"),
            ("cap on a step's edge",           2 * STEP,     2 * STEP, 2 * STEP, "ok"),
            ("past a cap on a step's edge",    2 * STEP + 1, 2 * STEP, 9 * STEP, "cap"),
            ("budget on a step's edge",        2 * STEP,     9 * STEP, 2 * STEP, "ok"),
            ("past a budget on a step's edge", 2 * STEP + 1, 9 * STEP, 2 * STEP, "budget"),
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
                assert_eq!(expected, outcome(&result), "{name}, by {piece}");
                let held = result.map_or(0, |bytes| bytes.len() as u64);
                assert_eq!(allowed - held, budget.remaining(), "{name}, by {piece}");
            }
        }
    }

    #[test]
    fn no_more_is_read_than_one_byte_past_the_cap() {
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
        /// Whatever fails, wherever: what is not handed over is given back.
        #[test]
        fn the_budget_never_leaks(
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
