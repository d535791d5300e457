//! Limits on the size of one call.

use crate::error::RequestError;

/// Maximum length of a list with one element per prompt. It bounds memory while the body is
/// read, before the operator's limit ([`BatchLimit`]) is checked.
pub(super) const MAX_ROWS: usize = 1 << 16;

/// Maximum bytes for the copies of values that several requests of a call share.
pub(super) const MAX_COPY_BYTES: usize = 64 << 20;

/// Maximum number of scheduler requests that one call may create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimit(Option<usize>);

impl BatchLimit {
    /// The limit in the form of `SGLANG_MAX_BATCH_REQS_PER_HTTP_REQ`: negative means no limit.
    #[must_use]
    pub fn new(limit: i64) -> Self {
        Self(usize::try_from(limit).ok())
    }

    /// Fails if a call creates more requests than the limit. `field` is the field that
    /// determines their number.
    pub(super) fn check(self, field: &str, requests: usize) -> Result<(), RequestError> {
        match self.0 {
            Some(limit) if requests > limit => Err(RequestError::field(
                field,
                format!(
                    "`{field}` asks for {requests} requests in one call; at most {limit} are allowed, send several calls"
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl Default for BatchLimit {
    fn default() -> Self {
        Self(Some(4096))
    }
}

/// The unused part of [`MAX_COPY_BYTES`].
#[derive(Debug)]
pub(super) struct CopyBudget(usize);

impl CopyBudget {
    pub(super) fn new() -> Self {
        Self(MAX_COPY_BYTES)
    }

    /// Charges `copies` copies of `bytes` bytes, caused by `field`.
    pub(super) fn pay(
        &mut self,
        field: &str,
        bytes: usize,
        copies: usize,
    ) -> Result<(), RequestError> {
        let left = bytes
            .checked_mul(copies)
            .and_then(|cost| self.0.checked_sub(cost));
        self.0 = left.ok_or_else(|| {
            let most = MAX_COPY_BYTES >> 20;
            RequestError::field(
                field,
                format!(
                    "`{field}` is copied for {copies} requests, and all copies of a call may take {most} MiB; send several calls"
                ),
            )
        })?;
        Ok(())
    }
}
