//! How much one call may ask for.

use crate::error::RequestError;

/// Most elements of a list that has one for each prompt. An operator's own limit is
/// lower, unless there is none; this one bounds what is held before that is known.
pub(super) const MAX_ROWS: usize = 1 << 16;

/// Bytes that the copies of what is said once for several requests may take.
pub(super) const COPIES: usize = 64 << 20;

/// Most requests that one call may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimit(Option<usize>);

impl BatchLimit {
    /// As `SGLANG_MAX_BATCH_REQS_PER_HTTP_REQ` says it: a negative number is no limit.
    #[must_use]
    pub fn new(limit: i64) -> Self {
        Self(usize::try_from(limit).ok())
    }

    /// Refuses a call of `requests`, more than the limit. `field` has made them so many.
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

/// What is left of [`COPIES`].
#[derive(Debug)]
pub(super) struct CopyBudget(usize);

impl CopyBudget {
    pub(super) fn new() -> Self {
        Self(COPIES)
    }

    /// Pays for `copies` of `bytes`, which `field` needs.
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
            let most = COPIES >> 20;
            RequestError::field(
                field,
                format!(
                    "`{field}` means copies for {copies} requests, and all copies of a call may take {most} MiB; send several calls"
                ),
            )
        })?;
        Ok(())
    }
}
