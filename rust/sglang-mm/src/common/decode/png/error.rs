//! Decoding errors for a PNG file.

use super::super::{error::DecodeError, format::Format};

pub(super) fn corrupt(problem: &'static str) -> DecodeError {
    DecodeError::corrupt(Format::Png, problem)
}

pub(super) fn truncated(inside: &'static str) -> DecodeError {
    DecodeError::truncated(Format::Png, inside)
}
