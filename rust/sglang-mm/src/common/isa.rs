//! Detects at run time which instruction set a kernel may use.
//!
//! Invariant: the choice affects only speed. All variants of a kernel give the same bytes, and a
//! test compares them.

/// An instruction set for which kernels exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// Plain Rust for any CPU: the reference.
    Scalar,
    /// 256-bit integer vectors on x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Isa {
    /// The fastest instruction set that this CPU supports.
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if Self::Avx2.is_supported() {
            return Self::Avx2;
        }
        Self::Scalar
    }

    /// Whether this CPU supports it. The standard library caches the answer.
    pub(crate) fn is_supported(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
        }
    }

    /// All that this CPU supports, for tests that compare them.
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
