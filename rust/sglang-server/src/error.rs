//! The errors of requests, and the HTTP status of each.
//!
//! Invariant: a client error has a status below 500 and a text that says what to change. A
//! server error is 500. A request that the server cannot take now gets 503.

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request is invalid.
    #[error("invalid request: {message}")]
    Invalid {
        /// What is wrong.
        message: String,
        /// The field that is wrong, if it is a single one.
        param: Option<String>,
        /// A stable name for programs, such as `context_length_exceeded`.
        code: &'static str,
    },
    /// A queue is full, or the client reads its answer too slowly.
    #[error("overloaded: {0}")]
    QueueFull(String),
    /// The server is shutting down, or the scheduler is gone.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The text could not be tokenized.
    #[error("tokenizer: {0}")]
    Tokenize(String),
    /// The tokens could not be decoded to text.
    #[error("detokenizer: {0}")]
    Detokenize(String),
    /// A frame of the scheduler could not be read.
    #[error("scheduler frame: {0}")]
    Codec(String),
    /// The scheduler, or a client by `/abort_request`, aborted the request.
    #[error("{message}")]
    Aborted {
        /// The HTTP status that was given with the abort.
        status: u16,
        /// The message that was given with the abort.
        message: String,
        /// The scheduler's name for the kind of error.
        err_type: Option<String>,
    },
    /// A bug in the server, or an error that the scheduler reported.
    #[error("internal: {0}")]
    Internal(String),
}

impl RequestError {
    /// The error for requests that the shutdown ends or refuses.
    #[must_use]
    pub fn shutting_down() -> Self {
        Self::Unavailable("the server is shutting down".into())
    }

    /// The field `param` is invalid.
    #[must_use]
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
            param: Some(param.into()),
            code: "invalid_value",
        }
    }

    /// The request as a whole is invalid.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
            param: None,
            code: "invalid_request",
        }
    }

    /// The HTTP status for the client.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Invalid { .. } => 400,
            Self::QueueFull(_) | Self::Unavailable(_) => 503,
            // The scheduler should send only statuses in this range. Any other becomes 500.
            Self::Aborted { status, .. } if (400..600).contains(status) => *status,
            Self::Aborted { .. }
            | Self::Tokenize(_)
            | Self::Detokenize(_)
            | Self::Codec(_)
            | Self::Internal(_) => 500,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RequestError;

    #[test]
    fn each_error_has_its_status_and_text() {
        let aborted = |status| RequestError::Aborted {
            status,
            message: "no".into(),
            err_type: None,
        };
        #[rustfmt::skip]
        let cases = [
            (RequestError::invalid("no"),                400, "invalid request: no"),
            (RequestError::field("n", "no"),             400, "invalid request: no"),
            (RequestError::QueueFull("no".into()),       503, "overloaded: no"),
            (RequestError::Unavailable("no".into()),     503, "unavailable: no"),
            (RequestError::Tokenize("no".into()),        500, "tokenizer: no"),
            (RequestError::Detokenize("no".into()),      500, "detokenizer: no"),
            (RequestError::Codec("no".into()),           500, "scheduler frame: no"),
            (RequestError::Internal("no".into()),        500, "internal: no"),
            (aborted(400),                               400, "no"),
            (aborted(503),                               503, "no"),
            (aborted(200),                               500, "no"),
            (aborted(0),                                 500, "no"),
        ];
        for (error, status, text) in cases {
            assert_eq!(status, error.status(), "{error:?}");
            assert_eq!(text, error.to_string());
        }
    }
}
