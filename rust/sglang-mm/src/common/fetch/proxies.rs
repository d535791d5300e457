//! Through which proxy a request goes, as Python's `requests` decides it.
//!
//! Per scheme: `http_proxy` for http, `https_proxy` for https, else `all_proxy`; lower case
//! wins over upper case, and an empty lower-case variable takes the upper-case one away.
//! `no_proxy`, or `NO_PROXY` where that is not set (empty is set), lists the hosts that are
//! reached directly.
//!
//! Invariant: the environment is read once per fetch, and credentials appear in no message.

use std::env;

use url::Url;

use super::{HostList, HttpError, target::Target};

/// What the environment says about proxies.
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

    /// The proxy for `target`; none means the direct way.
    pub(super) fn route(&self, target: &Target) -> Result<Option<Url>, HttpError> {
        if self.bypass.holds(&target.host(), target.spelled_port()) {
            return Ok(None);
        }
        let own = if target.is_https() {
            &self.https
        } else {
            &self.http
        };
        own.as_ref()
            .or(self.all.as_ref())
            .map(|text| proxy_url(text.trim()))
            .transpose()
    }
}

/// A proxy may be spelled without its scheme.
fn proxy_url(text: &str) -> Result<Url, HttpError> {
    let spelled = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url = Url::parse(&spelled).map_err(|_| HttpError::BadProxy)?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(HttpError::ProxyScheme(scheme.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::Proxies;
    use crate::common::fetch::target::Target;

    /// Where a request goes under an environment; `VARIABLE=value`, one a line.
    fn route(environment: &[&str], url: &str) -> String {
        let proxies = Proxies::from_variables(|wanted| {
            let mut pairs = environment.iter().filter_map(|line| line.split_once('='));
            pairs
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| value.to_owned())
        });
        match proxies.route(&Target::parse(url).unwrap()) {
            Ok(None) => "direct".to_owned(),
            Ok(Some(proxy)) => proxy.as_str().trim_end_matches('/').to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn routes() {
        const URL: &str = "http://h.x/a.png";
        const TLS: &str = "https://h.x/a.png";
        #[rustfmt::skip]
        let cases: &[(&str, &[&str], &str, &str)] = &[
            ("no variables",                  &[],                                             URL, "direct"),
            ("http",                          &["http_proxy=http://p:1"],                      URL, "http://p:1"),
            ("http, upper case",              &["HTTP_PROXY=http://p:1"],                      URL, "http://p:1"),
            ("http is not for https",         &["http_proxy=http://p:1"],                      TLS, "direct"),
            ("https",                         &["https_proxy=http://p:1"],                     TLS, "http://p:1"),
            ("https is not for http",         &["HTTPS_PROXY=http://p:1"],                     URL, "direct"),
            ("all, for http",                 &["all_proxy=http://p:1"],                       URL, "http://p:1"),
            ("all, for https",                &["ALL_PROXY=http://p:1"],                       TLS, "http://p:1"),
            ("the scheme's own wins",         &["all_proxy=http://p:1", "HTTP_PROXY=http://q:2"], URL, "http://q:2"),
            ("lower case wins",               &["HTTP_PROXY=http://p:1", "http_proxy=http://q:2"], URL, "http://q:2"),
            ("empty lower case takes away",   &["HTTP_PROXY=http://p:1", "http_proxy="],       URL, "direct"),
            ("then all serves",               &["http_proxy=", "all_proxy=http://p:1"],        URL, "http://p:1"),
            ("no scheme",                     &["http_proxy=p:3128"],                          URL, "http://p:3128"),
            ("white space",                   &["http_proxy= http://p:1 "],                    URL, "http://p:1"),
            ("a TLS proxy",                   &["http_proxy=https://p:1"],                     URL, "https://p:1"),
            ("socks",                         &["all_proxy=socks5://u:secret@p:1"],            URL, "the proxy's scheme is `socks5`: only http and https proxies are supported"),
            ("nonsense",                      &["all_proxy=http://u:secret@:p"],               URL, "a proxy variable holds no URL"),
            ("bypass",                        &["http_proxy=http://p:1", "no_proxy=h.x"],      URL, "direct"),
            ("bypass, upper case",            &["http_proxy=http://p:1", "NO_PROXY=x"],        URL, "direct"),
            ("bypass, lower case first",      &["http_proxy=http://p:1", "no_proxy=y", "NO_PROXY=x"], URL, "http://p:1"),
            ("an empty no_proxy is set",      &["http_proxy=http://p:1", "no_proxy=", "NO_PROXY=*"], URL, "http://p:1"),
            ("bypass of everything",          &["all_proxy=http://p:1", "NO_PROXY=*"],         TLS, "direct"),
            ("bypass of a network",           &["http_proxy=http://p:1", "NO_PROXY=127.0.0.0/8"], "http://127.1/", "direct"),
            ("bypass, leading dot",           &["http_proxy=http://p:1", "NO_PROXY=.svc"],     "http://a.svc/", "direct"),
            ("bypass of a port",              &["http_proxy=http://p:1", "NO_PROXY=h.x:8080"], "http://h.x:8080/", "direct"),
            ("bypass of another port",        &["http_proxy=http://p:1", "NO_PROXY=h.x:8080"], URL, "http://p:1"),
            ("default port, spelled",         &["http_proxy=http://p:1", "NO_PROXY=h.x:80"],   "http://h.x:80/", "direct"),
            ("default port, not spelled",     &["http_proxy=http://p:1", "NO_PROXY=h.x:80"],   URL, "http://p:1"),
            ("bypass of IPv6",                &["http_proxy=http://p:1", "NO_PROXY=::1"],      "http://[::1]:8/", "direct"),
        ];
        for (name, environment, url, expected) in cases {
            assert_eq!(*expected, route(environment, url), "{name}");
        }
    }
}
