//! Converts strips of RGB rows to the patches that a vision tower reads.
//!
//! Normalisation is a table lookup: for each channel a byte has one value, which a family
//! computes by its own formula. So a row of patches is written directly from a strip of resized
//! rows, without storing the resized or the normalised image. `planar` keeps the channels of a
//! patch apart, and `interleaved` keeps the channels of a pixel together.
//!
//! Invariant: values are copied from the table and the padding, without arithmetic, and every
//! element of a patch is written.

mod interleaved;
mod planar;
mod table;

pub use interleaved::Interleaved;
pub use planar::Planar;
pub use table::{Element, ValueTable};

#[cfg(test)]
mod tests;
