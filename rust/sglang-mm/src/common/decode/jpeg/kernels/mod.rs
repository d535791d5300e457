//! Our versions of libjpeg's per-sample work: the inverse transform, chroma upsampling, colour.
//!
//! libjpeg-turbo has vector code, but only if an assembler was present when it was built. A build
//! without that code decodes damaged files to other bits. These kernels need no assembler and give
//! the same bits on every machine.
//!
//! Invariant: every set gives the bits of `scalar`, for any coefficients.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod scalar;

use std::slice;

#[cfg(target_arch = "x86_64")]
use crate::common::isa::Isa;
use scalar::OutSample;

/// One set of kernels, as `shim.c` calls them.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Kernels {
    /// Arguments: multipliers, coefficients, eight output rows, and the column of the block in them.
    inverse_dct: unsafe extern "C" fn(*const i16, *const i16, *const *mut u8, usize),
    /// Arguments: luma, blue chroma, red chroma, RGB output, and the width.
    ycc_to_rgb: unsafe extern "C" fn(*const u8, *const u8, *const u8, *mut u8, usize),
    /// Arguments: a row, the output of twice its width, and the width.
    double_columns: unsafe extern "C" fn(*const u8, *mut u8, usize),
    /// Arguments: the nearer row, the farther row, the output of twice their width, and the width.
    double_columns_between: unsafe extern "C" fn(*const u8, *const u8, *mut u8, usize),
}

impl Kernels {
    /// The reference set, which defines the results.
    pub(super) const SCALAR: Self = Self::from_set::<Scalar>();

    /// Every set that this CPU can run, the fastest first.
    pub(super) fn supported() -> impl Iterator<Item = (&'static str, &'static Self)> {
        #[cfg(target_arch = "x86_64")]
        let avx2 =
            (Isa::Avx2.is_supported()).then_some(("avx2", &const { Self::from_set::<Avx2>() }));
        #[cfg(not(target_arch = "x86_64"))]
        let avx2 = None;
        avx2.into_iter().chain([("scalar", &Self::SCALAR)])
    }

    /// The fastest set that this CPU can run.
    pub(super) fn best() -> &'static Self {
        Self::supported()
            .next()
            .map_or(&Self::SCALAR, |(_, set)| set)
    }

    const fn from_set<S: KernelSet>() -> Self {
        Self {
            inverse_dct: inverse_dct::<S>,
            ycc_to_rgb: ycc_to_rgb::<S>,
            double_columns: double_columns::<S>,
            double_columns_between: double_columns_between::<S>,
        }
    }
}

/// The kernels on slices. `scalar` documents what each computes.
trait KernelSet {
    fn inverse_dct(
        multipliers: &[i16; 64],
        coefficients: &[i16; 64],
        rows: [&mut [OutSample; 8]; 8],
    );
    /// The planes have the same length, and `rgb` is three times as long.
    fn ycc_to_rgb(planes: [&[u8]; 3], rgb: &mut [OutSample]);
    /// `out` is twice as long as `row`, which is not empty.
    fn double_columns(row: &[u8], out: &mut [OutSample]);
    /// `out` is twice as long as `near` and as `far`, which are not empty.
    fn double_columns_between(near: &[u8], far: &[u8], out: &mut [OutSample]);
}

struct Scalar;

impl KernelSet for Scalar {
    fn inverse_dct(
        multipliers: &[i16; 64],
        coefficients: &[i16; 64],
        rows: [&mut [OutSample; 8]; 8],
    ) {
        scalar::inverse_dct(multipliers, coefficients, rows);
    }

    fn ycc_to_rgb(planes: [&[u8]; 3], rgb: &mut [OutSample]) {
        scalar::ycc_to_rgb(planes, rgb);
    }

    fn double_columns(row: &[u8], out: &mut [OutSample]) {
        scalar::double_columns(row, out);
    }

    fn double_columns_between(near: &[u8], far: &[u8], out: &mut [OutSample]) {
        scalar::double_columns_between(near, far, out);
    }
}

/// Used only by [`Kernels::supported`], on CPUs that have AVX2.
#[cfg(target_arch = "x86_64")]
struct Avx2;

#[cfg(target_arch = "x86_64")]
impl KernelSet for Avx2 {
    fn inverse_dct(
        multipliers: &[i16; 64],
        coefficients: &[i16; 64],
        rows: [&mut [OutSample; 8]; 8],
    ) {
        // SAFETY: this type is used only after AVX2 was detected.
        unsafe { avx2::inverse_dct(multipliers, coefficients, rows) }
    }

    fn ycc_to_rgb(planes: [&[u8]; 3], rgb: &mut [OutSample]) {
        // SAFETY: as above.
        unsafe { avx2::ycc_to_rgb(planes, rgb) }
    }

    fn double_columns(row: &[u8], out: &mut [OutSample]) {
        // SAFETY: as above.
        unsafe { avx2::double_columns(row, out) }
    }

    fn double_columns_between(near: &[u8], far: &[u8], out: &mut [OutSample]) {
        // SAFETY: as above.
        unsafe { avx2::double_columns_between(near, far, out) }
    }
}

// The functions that C calls. libjpeg keeps its inputs and outputs in different arrays, so that no
// slice below overlaps one that is written to.

unsafe extern "C" fn inverse_dct<S: KernelSet>(
    multipliers: *const i16,
    coefficients: *const i16,
    rows: *const *mut u8,
    column: usize,
) {
    // SAFETY: C passes two blocks of 64 numbers, and eight rows that reach 8 samples past the column.
    // They are different rows, so each is borrowed once.
    unsafe {
        let row = |y| &mut *(*rows.add(y)).add(column).cast::<[OutSample; 8]>();
        S::inverse_dct(
            &*multipliers.cast(),
            &*coefficients.cast(),
            std::array::from_fn(row),
        );
    }
}

unsafe extern "C" fn ycc_to_rgb<S: KernelSet>(
    luma: *const u8,
    blue: *const u8,
    red: *const u8,
    rgb: *mut u8,
    width: usize,
) {
    // SAFETY: C passes three rows of `width` samples and one of `width` pixels.
    unsafe {
        let planes = [luma, blue, red].map(|plane| slice::from_raw_parts(plane, width));
        S::ycc_to_rgb(planes, slice::from_raw_parts_mut(rgb.cast(), width * 3));
    }
}

unsafe extern "C" fn double_columns<S: KernelSet>(row: *const u8, out: *mut u8, width: usize) {
    // SAFETY: C passes a row of `width` samples and one of twice as many.
    unsafe {
        S::double_columns(
            slice::from_raw_parts(row, width),
            slice::from_raw_parts_mut(out.cast(), width * 2),
        );
    }
}

unsafe extern "C" fn double_columns_between<S: KernelSet>(
    near: *const u8,
    far: *const u8,
    out: *mut u8,
    width: usize,
) {
    // SAFETY: C passes two rows of `width` samples and one of twice as many.
    unsafe {
        S::double_columns_between(
            slice::from_raw_parts(near, width),
            slice::from_raw_parts(far, width),
            slice::from_raw_parts_mut(out.cast(), width * 2),
        );
    }
}

#[cfg(test)]
mod tests;
