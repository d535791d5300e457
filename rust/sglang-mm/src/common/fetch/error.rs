//! What can go wrong with a source, in words that are safe to show to whoever sent it.
//!
//! Invariant: of a URL only scheme, host and port appear, never its credentials, path or
//! query, which may be signatures; of inline data nothing appears; what appears is short.

use std::{error::Error, io, time::Duration};

use super::MAX_REDIRECTS;
use crate::common::{base64::Base64Error, excerpt::excerpt};

/// A source gave no bytes.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// A request failed, or was refused before it was made.
    #[error("media fetch: GET {origin}: {cause}")]
    Http {
        /// Scheme, host and port of the request that failed, which may follow a redirect.
        origin: String,
        /// What happened.
        #[source]
        cause: HttpError,
    },
    /// What begins like an http URL is none.
    #[error("media fetch: malformed URL: {0}")]
    MalformedUrl(#[source] url::ParseError),
    /// A URL that no request can hold.
    #[error("media fetch: malformed URL: {0} bytes are more than a request can hold")]
    LongUrl(usize),
    /// Reading failed half-way.
    #[error("media fetch: read {what}: {source}")]
    Read {
        /// The origin or the path.
        what: String,
        /// What the system or the decoder says.
        source: io::Error,
    },
    /// The source holds more than one source may.
    #[error("media fetch: {what}: exceeds {cap} bytes")]
    TooLarge {
        /// The origin or the path.
        what: String,
        /// How much it may hold.
        cap: u64,
    },
    /// The source holds more than the request may still take up.
    #[error("media fetch: {what}: exceeds the request media byte budget")]
    OverBudget {
        /// The origin, the path or what kind of inline data.
        what: String,
    },
    /// The system has no room for it.
    #[error("media fetch: {what}: more memory than there is")]
    OutOfMemory {
        /// The origin, the path or what kind of inline data.
        what: String,
    },
    /// There is no comma before the data.
    #[error("media fetch: malformed data: URL: no comma")]
    MalformedDataUrl,
    /// What is behind the comma of a data: URL, or is neither URL nor absolute path, is not base64.
    #[error("media fetch: {what}: {source}")]
    Base64 {
        /// What kind of inline data.
        what: &'static str,
        /// Where it breaks the rules.
        source: Base64Error,
    },
    /// The policy reads no local files.
    #[error("media fetch: local files are not allowed here")]
    FilesRefused,
    /// The media folder has no such file. One error for all reasons: from it nobody learns
    /// what else exists on the machine.
    #[error("media fetch: no such file in the media folder")]
    NotInMediaFolder,
    /// A directory, a pipe, a device.
    #[error("media fetch: read {what}: not a regular file")]
    NotAFile {
        /// The path.
        what: String,
    },
    /// The file grew or shrank meanwhile.
    #[error("media fetch: read {what}: changed size while reading")]
    Changed {
        /// The path.
        what: String,
    },
}

/// Why a request gave no bytes.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The whole request, redirects included, took too long.
    #[error("timed out after {0:?} (REQUEST_TIMEOUT)")]
    Timeout(Duration),
    /// The server did not send what was asked for.
    #[error("status {0}")]
    Status(ureq::http::StatusCode),
    /// The server sent nothing.
    #[error("status {0} with an empty body")]
    Empty(ureq::http::StatusCode),
    /// Redirects never end.
    #[error("more than {MAX_REDIRECTS} redirects")]
    TooManyRedirects,
    /// A redirect without a destination.
    #[error("status {0} without a Location")]
    NoLocation(ureq::http::StatusCode),
    /// A redirect whose destination is no text.
    #[error("status {0} with a Location that is not UTF-8")]
    RedirectText(ureq::http::StatusCode),
    /// A redirect to what is no URL.
    #[error("redirect to a malformed URL: {0}")]
    BadRedirect(#[source] url::ParseError),
    /// A redirect away from HTTP.
    #[error("redirect to a `{0}:` URL is refused")]
    RedirectScheme(String),
    /// The policy names the hosts it allows, and this is none of them.
    #[error("this host is not allowed")]
    HostRefused,
    /// The policy allows global addresses, and this host has another one.
    #[error("this host is not allowed: it has an address that is not global")]
    NotGlobal,
    /// The host's name has no address.
    #[error("name resolution failed: {0}")]
    Unresolved(#[source] io::Error),
    /// The URL is valid and HTTP cannot carry it.
    #[error("malformed URL")]
    BadUrl,
    /// A proxy variable of the environment holds no URL.
    #[error("a proxy variable holds no URL")]
    BadProxy,
    /// A proxy of another kind.
    #[error("the proxy's scheme is `{0}`: only http and https proxies are supported")]
    ProxyScheme(String),
    /// The file of trusted certificates cannot be used.
    #[error("trusted certificates: {0}")]
    Trust(String),
    /// The body is compressed in a way that was not asked for.
    #[error("unexpected content encoding `{0}`")]
    Encoding(String),
    /// Connecting, TLS or the protocol failed.
    #[error("{}", excerpt(.0))]
    Exchange(#[source] Box<dyn Error + Send + Sync>),
}
