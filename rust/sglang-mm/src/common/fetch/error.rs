//! The errors of a fetch. Their texts are safe to show to the client that sent the source.
//!
//! Invariant: a text has only the scheme, host and port of a URL, never its credentials, path or
//! query, which may contain signatures. It has no inline data, and it is short.

use std::{error::Error, io, time::Duration};

use super::MAX_REDIRECTS;
use crate::common::{base64::Base64Error, excerpt::excerpt};

/// A source could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// A request failed, or was refused before it was sent.
    #[error("media fetch: GET {origin}: {cause}")]
    Http {
        /// Scheme, host and port of the failed request, which may have followed a redirect.
        origin: String,
        /// What happened.
        #[source]
        cause: HttpError,
    },
    /// The source starts like an http URL but is not a URL.
    #[error("media fetch: malformed URL: {0}")]
    MalformedUrl(#[source] url::ParseError),
    /// The URL is longer than a request can hold.
    #[error("media fetch: malformed URL: {0} bytes are more than a request can hold")]
    LongUrl(usize),
    /// Reading failed.
    #[error("media fetch: read {name}: {source}")]
    Read {
        /// The origin or the path.
        name: String,
        /// The error of the system or of the decompressor.
        source: io::Error,
    },
    /// The source is longer than [`MAX_FETCH_BYTES`](super::MAX_FETCH_BYTES).
    #[error("media fetch: {name}: exceeds {cap} bytes")]
    TooLarge {
        /// The origin or the path.
        name: String,
        /// The limit in bytes.
        cap: u64,
    },
    /// The source is longer than the rest of the request's budget.
    #[error("media fetch: {name}: exceeds the request media byte budget")]
    OverBudget {
        /// The origin, the path or the kind of inline data.
        name: String,
    },
    /// The system refused memory for the source.
    #[error("media fetch: {name}: not enough memory")]
    OutOfMemory {
        /// The origin, the path or the kind of inline data.
        name: String,
    },
    /// The `data:` URL has no comma.
    #[error("media fetch: malformed data: URL: no comma")]
    MalformedDataUrl,
    /// Invalid base64, in a `data:` URL or in a source that is neither a URL nor an absolute path.
    #[error("media fetch: {name}: {source}")]
    Base64 {
        /// What kind of inline data.
        name: &'static str,
        /// The error of the base64 decoder.
        source: Base64Error,
    },
    /// The policy allows no local files.
    #[error("media fetch: local files are not allowed here")]
    FilesRefused,
    /// The media folder has no such file. All reasons give this one error, so that it does not reveal
    /// which other files exist on the machine.
    #[error("media fetch: no such file in the media folder")]
    NotInMediaFolder,
    /// The path is a directory, a pipe or a device.
    #[error("media fetch: read {name}: not a regular file")]
    NotAFile {
        /// The path.
        name: String,
    },
    /// The file grew or shrank during the read.
    #[error("media fetch: read {name}: changed size while reading")]
    Changed {
        /// The path.
        name: String,
    },
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The whole request, redirects included, took too long.
    #[error("timed out after {0:?} (REQUEST_TIMEOUT)")]
    Timeout(Duration),
    /// The server responded with an error status.
    #[error("status {0}")]
    Status(ureq::http::StatusCode),
    /// The response has an empty body.
    #[error("status {0} with an empty body")]
    Empty(ureq::http::StatusCode),
    /// There were too many redirects.
    #[error("more than {MAX_REDIRECTS} redirects")]
    TooManyRedirects,
    /// A redirect has no `Location` header.
    #[error("status {0} without a Location")]
    NoLocation(ureq::http::StatusCode),
    /// The `Location` header of a redirect is not UTF-8.
    #[error("status {0} with a Location that is not UTF-8")]
    RedirectText(ureq::http::StatusCode),
    /// The `Location` header of a redirect is not a URL.
    #[error("redirect to a malformed URL: {0}")]
    BadRedirect(#[source] url::ParseError),
    /// A redirect leads to a scheme other than http and https.
    #[error("redirect to a `{0}:` URL is refused")]
    RedirectScheme(String),
    /// The policy lists the allowed hosts, and this host is not one of them.
    #[error("this host is not allowed")]
    HostRefused,
    /// The policy allows global addresses only, and this host has an address that is not global.
    #[error("this host is not allowed: it has an address that is not global")]
    NotGlobal,
    /// The host name could not be resolved.
    #[error("name resolution failed: {0}")]
    Unresolved(#[source] io::Error),
    /// The URL is valid but cannot be sent in an HTTP request.
    #[error("malformed URL")]
    BadUrl,
    /// A proxy variable of the environment is not a URL.
    #[error("a proxy variable is not a URL")]
    BadProxy,
    /// The proxy is neither an http nor an https proxy.
    #[error("the proxy's scheme is `{0}`: only http and https proxies are supported")]
    ProxyScheme(String),
    /// The file of trusted certificates could not be read.
    #[error("trusted certificates: {0}")]
    Trust(String),
    /// The body has a compression that was not requested.
    #[error("unexpected content encoding `{0}`")]
    Encoding(String),
    /// Connecting, TLS or the protocol failed.
    #[error("{}", excerpt(.0))]
    Exchange(#[source] Box<dyn Error + Send + Sync>),
}
