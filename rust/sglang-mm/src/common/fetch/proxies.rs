//! Chooses the proxy of a request, by the same rules as Python's `requests`.
//!
//! The variable is `http_proxy` for http and `https_proxy` for https, else `all_proxy`. Lower case
//! has priority over upper case, and an empty lower-case variable hides the upper-case one.
//! `no_proxy` lists the hosts that are reached directly. `NO_PROXY` is used if `no_proxy` is not
//! set; an empty value counts as set.
//!
//! Invariant: the environment is read once per fetch, and no message contains credentials.

use std::env;

use url::Url;

use super::{HostList, HttpError, target::Target};

/// The proxy settings of the environment.
#[derive(Clone, Debug, Default)]
pub(super) struct Proxies {
    http: Option<String>,
    https: Option<String>,
    all: Option<String>,
    bypass: HostList,
}

impl Proxies {
    pub(super) fn from_environment() -> Self {
        Self::from_variables(|name| env::var(name).ok())
    }

    pub(super) fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first_set = |name: &str| variable(name).or_else(|| variable(&name.to_uppercase()));
        let proxy = |name| first_set(name).filter(|text| !text.trim().is_empty());
        Self {
            http: proxy("http_proxy"),
            https: proxy("https_proxy"),
            all: proxy("all_proxy"),
            bypass: HostList::parse(&first_set("no_proxy").unwrap_or_default()),
        }
    }

    /// The proxy for `target`. `None` means a direct connection.
    pub(super) fn route(&self, target: &Target) -> Result<Option<Url>, HttpError> {
        if self.bypass.contains(&target.host(), target.explicit_port()) {
            return Ok(None);
        }
        let for_scheme = if target.is_https() {
            &self.https
        } else {
            &self.http
        };
        for_scheme
            .as_ref()
            .or(self.all.as_ref())
            .map(|text| proxy_url(text.trim()))
            .transpose()
    }
}

/// Parses the URL of a proxy. The scheme may be missing.
fn proxy_url(text: &str) -> Result<Url, HttpError> {
    let with_scheme = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url = Url::parse(&with_scheme).map_err(|_| HttpError::BadProxy)?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(HttpError::ProxyScheme(scheme.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::Proxies;
    use crate::common::fetch::target::Target;

    /// The proxy of a request with the given variables, each as `VARIABLE=value`.
    fn route(environment: &[&str], url: &str) -> String {
        let proxies = Proxies::from_variables(|requested| {
            let mut pairs = environment.iter().filter_map(|line| line.split_once('='));
            pairs
                .find(|(name, _)| *name == requested)
                .map(|(_, value)| value.to_owned())
        });
        match proxies.route(&Target::parse(url).unwrap()) {
            Ok(None) => "direct".to_owned(),
            Ok(Some(proxy)) => proxy.as_str().trim_end_matches('/').to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// Over 40 lines: one row per rule.
    #[test]
    fn proxy_is_chosen_like_requests_does() {
        const URL: &str = "http://h.x/a.png";
        const TLS: &str = "https://h.x/a.png";
        #[rustfmt::skip]
        let cases: &[(&str, &[&str], &str, &str)] = &[
            ("no variables",                  &[], URL, "direct"),
            ("http",                          &["http_proxy=http://p:1"], URL, "http://p:1"),
            ("http, upper case",              &["HTTP_PROXY=http://p:1"], URL, "http://p:1"),
            ("http is not for https",         &["http_proxy=http://p:1"], TLS, "direct"),
            ("https",                         &["https_proxy=http://p:1"], TLS, "http://p:1"),
            ("https is not for http",         &["HTTPS_PROXY=http://p:1"], URL, "direct"),
            ("all, for http",                 &["all_proxy=http://p:1"], URL, "http://p:1"),
            ("all, for https",                &["ALL_PROXY=http://p:1"], TLS, "http://p:1"),
            ("scheme before all_proxy",       &["all_proxy=http://p:1", "HTTP_PROXY=http://q:2"], URL, "http://q:2"),
            ("lower case first",              &["HTTP_PROXY=http://p:1", "http_proxy=http://q:2"], URL, "http://q:2"),
            ("empty lower case hides upper",  &["HTTP_PROXY=http://p:1", "http_proxy="], URL, "direct"),
            ("empty, then all_proxy",         &["http_proxy=", "all_proxy=http://p:1"], URL, "http://p:1"),
            ("no scheme",                     &["http_proxy=p:3128"], URL, "http://p:3128"),
            ("white space",                   &["http_proxy= http://p:1 "], URL, "http://p:1"),
            ("a TLS proxy",                   &["http_proxy=https://p:1"], URL, "https://p:1"),
            ("socks",                         &["all_proxy=socks5://u:secret@p:1"], URL,
                "the proxy's scheme is `socks5`: only http and https proxies are supported"),
            ("not a URL",                     &["all_proxy=http://u:secret@:p"], URL, "a proxy variable is not a URL"),
            ("bypass",                        &["http_proxy=http://p:1", "no_proxy=h.x"], URL, "direct"),
            ("bypass, upper case",            &["http_proxy=http://p:1", "NO_PROXY=x"], URL, "direct"),
            ("bypass, lower case first",      &["http_proxy=http://p:1", "no_proxy=y", "NO_PROXY=x"], URL,
                "http://p:1"),
            ("an empty no_proxy counts",      &["http_proxy=http://p:1", "no_proxy=", "NO_PROXY=*"], URL, "http://p:1"),
            ("bypass of everything",          &["all_proxy=http://p:1", "NO_PROXY=*"], TLS, "direct"),
            ("bypass of a network",           &["http_proxy=http://p:1", "NO_PROXY=127.0.0.0/8"], "http://127.1/",
                "direct"),
            ("bypass, leading dot",           &["http_proxy=http://p:1", "NO_PROXY=.svc"], "http://a.svc/", "direct"),
            ("bypass of a port",              &["http_proxy=http://p:1", "NO_PROXY=h.x:8080"], "http://h.x:8080/",
                "direct"),
            ("bypass of another port",        &["http_proxy=http://p:1", "NO_PROXY=h.x:8080"], URL, "http://p:1"),
            ("default port, explicit",        &["http_proxy=http://p:1", "NO_PROXY=h.x:80"], "http://h.x:80/",
                "direct"),
            ("default port, not explicit",    &["http_proxy=http://p:1", "NO_PROXY=h.x:80"], URL, "http://p:1"),
            ("bypass of IPv6",                &["http_proxy=http://p:1", "NO_PROXY=::1"], "http://[::1]:8/", "direct"),
        ];
        for (name, environment, url, expected) in cases {
            assert_eq!(*expected, route(environment, url), "{name}");
        }
    }
}
