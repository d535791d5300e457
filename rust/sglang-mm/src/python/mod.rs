//! The Python face of this crate; so far without exports.
