//! HTTP GET with redirects, one deadline for all hops, and checks of the response.
//!
//! Each hop is a new request: its policy, addresses and proxy are determined separately.
//!
//! Invariant: no request goes to a host before the policy has allowed it.

use std::{
    env,
    io::{self, Read},
    net::SocketAddr,
    time::{Duration, Instant},
};

use flate2::read::MultiGzDecoder;
use ureq::{
    Body, Proxy,
    http::{Request, Response, header},
};
use url::Url;

use super::{
    ByteBudget, FetchError, FetchPolicy, HttpError, MAX_FETCH_BYTES, MAX_REDIRECTS,
    address::is_global,
    capped::{self, Stopped},
    dial::Route,
    proxies::Proxies,
    target::{Target, basic_authorization},
};

/// The longest URL in bytes that the client can send.
const MAX_URL_LEN: usize = 65_534;

/// Fetches `source`, following redirects, and returns the body.
pub(super) fn get(
    policy: &FetchPolicy,
    source: &str,
    budget: &ByteBudget,
) -> Result<Vec<u8>, FetchError> {
    if source.len() > MAX_URL_LEN {
        return Err(FetchError::LongUrl(source.len()));
    }
    let deadline = Deadline::after(policy.timeout.unwrap_or_else(timeout_from_environment));
    let proxies = policy
        .proxies
        .clone()
        .unwrap_or_else(Proxies::from_environment);
    let mut target = Target::parse(source).map_err(FetchError::MalformedUrl)?;
    for _ in 0..=MAX_REDIRECTS {
        let failed = |cause| FetchError::Http {
            origin: target.display_origin(),
            cause,
        };
        let response = exchange(policy, &proxies, &target, &deadline).map_err(failed)?;
        target = match redirect(&response).map_err(failed)? {
            Some(location) => target.follow(location).map_err(failed)?,
            None => return body(response, &target, &deadline, budget),
        };
    }
    Err(FetchError::Http {
        origin: target.display_origin(),
        cause: HttpError::TooManyRedirects,
    })
}

/// Sends one request and reads the head of its response.
fn exchange(
    policy: &FetchPolicy,
    proxies: &Proxies,
    target: &Target,
    deadline: &Deadline,
) -> Result<Response<Body>, HttpError> {
    let proxy = proxies.route(target)?;
    let addresses = addresses(policy, target, proxy.as_ref())?;
    // A plain request is forwarded by a plain proxy instead of tunnelled, because many proxies tunnel to
    // port 443 only.
    let (forwarder, tunnel) = match proxy {
        Some(proxy) if proxy.scheme() == "http" && !target.is_https() => (Some(proxy), None),
        other => (None, other),
    };
    let request = request(target, forwarder.as_ref())?;
    let route = match (forwarder, tunnel) {
        (Some(_), _) => Route::Forwarded(target.origin()),
        (_, Some(proxy)) => {
            Route::Tunnelled(Proxy::new(proxy.as_str()).map_err(|_| HttpError::BadProxy)?)
        }
        _ => Route::Direct,
    };
    let client = policy
        .dialler
        .client(addresses, route, deadline.remaining()?)?;
    client
        .run(request)
        .map_err(|error| deadline.http_error(error))
}

/// The addresses to dial: those of the host, if the policy allows them, or those of the proxy.
fn addresses(
    policy: &FetchPolicy,
    target: &Target,
    proxy: Option<&Url>,
) -> Result<Vec<SocketAddr>, HttpError> {
    let dialler = &policy.dialler;
    let of_target = || dialler.resolve(&target.host(), target.port());
    if policy.reach.must_be_global(target)? {
        let found = of_target()?;
        if !found.iter().all(|address| is_global(address.ip())) {
            return Err(HttpError::NotGlobal);
        }
        if proxy.is_none() {
            return Ok(found);
        }
    }
    match proxy {
        None => of_target(),
        Some(proxy) => {
            let host = proxy.host().ok_or(HttpError::BadProxy)?;
            let port = proxy.port_or_known_default().ok_or(HttpError::BadProxy)?;
            dialler.resolve(&host, port)
        }
    }
}

fn request(target: &Target, forwarder: Option<&Url>) -> Result<Request<()>, HttpError> {
    let mut request = Request::get(target.uri()?);
    if let Some(value) = target.authorization() {
        request = request.header(header::AUTHORIZATION, value);
    }
    if let Some(value) = forwarder.and_then(basic_authorization) {
        request = request.header(header::PROXY_AUTHORIZATION, value);
    }
    request
        .body(())
        .map_err(|error| HttpError::Exchange(error.into()))
}

/// The location of a redirect. `None` if the response is not a redirect.
fn redirect(response: &Response<Body>) -> Result<Option<&str>, HttpError> {
    let status = response.status();
    match status.as_u16() {
        301 | 302 | 303 | 307 | 308 => {}
        200..=299 => return Ok(None),
        _ => return Err(HttpError::Status(status)),
    }
    let location = response
        .headers()
        .get(header::LOCATION)
        .ok_or(HttpError::NoLocation(status))?;
    let location = str::from_utf8(location.as_bytes());
    location
        .map(Some)
        .map_err(|_| HttpError::RedirectText(status))
}

/// The decompressed body of a response.
fn body(
    response: Response<Body>,
    target: &Target,
    deadline: &Deadline,
    budget: &ByteBudget,
) -> Result<Vec<u8>, FetchError> {
    let origin = target.display_origin();
    let failed = |cause| FetchError::Http {
        origin: origin.clone(),
        cause,
    };
    let status = response.status();
    let mut reader = decoded(response).map_err(failed)?;
    let read = capped::read(&mut reader, MAX_FETCH_BYTES, budget);
    match read {
        Ok(bytes) if bytes.is_empty() => Err(failed(HttpError::Empty(status))),
        Ok(bytes) => Ok(bytes),
        Err(Stopped::Io(error)) if is_timeout(&error) => {
            Err(failed(HttpError::Timeout(deadline.limit)))
        }
        Err(stopped) => Err(stopped.into_fetch_error(origin, MAX_FETCH_BYTES)),
    }
}

/// Decompresses gzip, the only compression that was requested. Other known compressions are refused
/// here, because their bytes would fail later as an unknown format. Unknown labels are ignored,
/// because some object stores set odd ones.
fn decoded(response: Response<Body>) -> Result<Box<dyn Read>, HttpError> {
    let (head, body) = response.into_parts();
    let encoding = head
        .headers
        .get(header::CONTENT_ENCODING)
        .map(|value| value.as_bytes().to_ascii_lowercase());
    let reader = body.into_reader();
    match encoding.as_deref().map(<[u8]>::trim_ascii) {
        Some(b"gzip" | b"x-gzip") => Ok(Box::new(MultiGzDecoder::new(reader))),
        Some(other @ (b"br" | b"compress" | b"deflate" | b"zstd")) => Err(HttpError::Encoding(
            String::from_utf8_lossy(other).into_owned(),
        )),
        _ => Ok(Box::new(reader)),
    }
}

/// The variable `REQUEST_TIMEOUT` in whole seconds, or three seconds.
pub(super) fn timeout_from_environment() -> Duration {
    let seconds = env::var("REQUEST_TIMEOUT")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// The deadline for one source.
struct Deadline {
    limit: Duration,
    start: Instant,
}

impl Deadline {
    /// The longest timeout in effect, so that adding it to a time cannot overflow.
    const MAX: Duration = Duration::from_hours(365 * 24);

    fn after(limit: Duration) -> Self {
        Self {
            limit,
            start: Instant::now(),
        }
    }

    fn remaining(&self) -> Result<Duration, HttpError> {
        let left = self
            .limit
            .min(Self::MAX)
            .saturating_sub(self.start.elapsed());
        if left.is_zero() {
            Err(HttpError::Timeout(self.limit))
        } else {
            Ok(left)
        }
    }

    fn http_error(&self, error: ureq::Error) -> HttpError {
        match error {
            ureq::Error::Timeout(_) => HttpError::Timeout(self.limit),
            ureq::Error::Io(error) if is_timeout(&error) => HttpError::Timeout(self.limit),
            // The original text would contain the URL.
            ureq::Error::BadUri(_) => HttpError::BadUrl,
            error => HttpError::Exchange(error.into()),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    error.kind() == io::ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_)))
}
