//! Which instruction set a kernel may use, found out at run time.
//!
//! Invariant: the choice shows in the time alone. Whatever has variants gives the same
//! bytes with each, and a test runs them all.

/// An instruction set that some kernel is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// What the compiler makes of plain Rust: the definition.
    Scalar,
    /// 256-bit integers on x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Isa {
    /// The fastest that this CPU has.
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if Self::Avx2.is_supported() {
            return Self::Avx2;
        }
        Self::Scalar
    }

    /// Whether this CPU has it; the answer is cached by the standard library.
    pub(crate) fn is_supported(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
        }
    }

    /// All that this CPU has, for tests that compare them.
    #[cfg(test)]
    pub(crate) fn supported() -> Vec<Self> {
        let all = [
            Self::Scalar,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2,
        ];
        all.into_iter().filter(|isa| isa.is_supported()).collect()
    }
}
