//! Why a request has no good end, and what an HTTP client is told.
//!
//! Invariant: what a client did wrong is a status below 500, and its text says what to
//! change; what we did wrong is 500, what we cannot take now is 503.

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request breaks a rule.
    #[error("invalid request: {message}")]
    Invalid {
        /// What is wrong.
        message: String,
        /// The field at fault, if it is one.
        param: Option<String>,
        /// A word for programs, such as `context_length_exceeded`.
        code: &'static str,
    },
    /// Too much is in flight.
    #[error("overloaded: {0}")]
    QueueFull(String),
    /// The server is shutting down, or the scheduler is gone.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The client went away.
    #[error("client disconnected")]
    Disconnected,
    /// The text could not be made tokens.
    #[error("tokenizer: {0}")]
    Tokenize(String),
    /// The tokens could not be made text.
    #[error("detokenizer: {0}")]
    Detokenize(String),
    /// A frame of the scheduler could not be read.
    #[error("scheduler frame: {0}")]
    Codec(String),
    /// The scheduler gave the request up, with a status of its own.
    #[error("{message}")]
    Aborted {
        /// The status for the client.
        status: u16,
        /// The scheduler's words.
        message: String,
        /// The scheduler's name of the fault.
        err_type: Option<String>,
    },
    /// A fault of ours.
    #[error("internal: {0}")]
    Internal(String),
}

impl RequestError {
    /// Nothing new is taken, and what is here ends.
    #[must_use]
    pub fn shutting_down() -> Self {
        Self::Unavailable("the server is shutting down".into())
    }

    /// A broken rule about the field `param`.
    #[must_use]
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
            param: Some(param.into()),
            code: "invalid_value",
        }
    }

    /// A broken rule about the request as a whole.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
            param: None,
            code: "invalid_request",
        }
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Invalid { .. } => 400,
            Self::QueueFull(_) | Self::Unavailable(_) => 503,
            Self::Disconnected => 499,
            // A status that no answer can have is a fault of ours.
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
    fn statuses() {
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
            (RequestError::Disconnected,                 499, "client disconnected"),
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
