//! The target of a request: a URL, parsed once.
//!
//! The `url` crate parses like browsers: `0x7f000001`, `127.1` and `2130706433` are addresses,
//! `\` ends the host like `/`, and names in other scripts become ASCII. The host that is checked,
//! dialled, sent and shown in errors comes from this one parse.
//!
//! Invariant: the scheme is http or https, and there is a host.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use ureq::http::Uri;
use url::{Host, ParseError, Position, Url};

use super::HttpError;
use crate::common::excerpt::excerpt;
use ::base64::{Engine as _, engine::general_purpose::STANDARD};

/// An http or https URL.
#[derive(Clone, Debug)]
pub(super) struct Target {
    url: Url,
    /// The same URL with the other scheme. `Url` drops an explicit port if it is the default of the
    /// scheme. This one keeps it.
    swapped: Url,
}

impl Target {
    /// Parses a source that starts with `http://` or `https://`.
    pub(super) fn parse(text: &str) -> Result<Self, ParseError> {
        Ok(Self {
            url: Url::parse(text)?,
            swapped: Url::parse(&swap_scheme(text))?,
        })
    }

    /// The target of a redirect. Credentials are kept for the same origin only.
    pub(super) fn follow(&self, location: &str) -> Result<Self, HttpError> {
        let join = |base: &Url, location: &str| base.join(location).map_err(HttpError::BadRedirect);
        let mut url = join(&self.url, location)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(HttpError::RedirectScheme(excerpt(url.scheme())));
        }
        if url.origin() == self.url.origin()
            && url.username().is_empty()
            && url.password().is_none()
        {
            // Neither call can fail, because the URL has a host.
            let _ = url.set_username(self.url.username());
            let _ = url.set_password(self.url.password());
        }
        let swapped = join(&self.swapped, &swap_scheme(location))?;
        Ok(Self { url, swapped })
    }

    pub(super) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    pub(super) fn host(&self) -> Host<&str> {
        self.url.host().expect("http and https URLs have a host")
    }

    pub(super) fn port(&self) -> u16 {
        self.url
            .port_or_known_default()
            .expect("http and https have a default port")
    }

    /// The port that the URL gives explicitly.
    pub(super) fn explicit_port(&self) -> Option<u16> {
        self.url.port().or(self.swapped.port())
    }

    /// Scheme, host and port.
    pub(super) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// The origin for error messages. The rest of the URL may be secret.
    pub(super) fn display_origin(&self) -> String {
        excerpt(self.origin())
    }

    /// The URL that the client sends, without credentials.
    pub(super) fn uri(&self) -> Result<Uri, HttpError> {
        let origin = self.origin();
        let path = &self.url[Position::BeforePath..Position::AfterQuery];
        format!("{origin}{path}")
            .parse()
            .map_err(|_| HttpError::BadUrl)
    }

    /// The value of the `Authorization` header, if the URL has credentials.
    pub(super) fn authorization(&self) -> Option<String> {
        basic_authorization(&self.url)
    }
}

/// Swaps http and https in an absolute URL. Other text is returned unchanged.
fn swap_scheme(text: &str) -> Cow<'_, str> {
    let after = |scheme: &str| {
        let (start, rest) = text.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    match (after("http:"), after("https:")) {
        (Some(rest), _) => format!("https:{rest}").into(),
        (_, Some(rest)) => format!("http:{rest}").into(),
        _ => text.into(),
    }
}

/// Basic authorization from the credentials in a URL.
pub(super) fn basic_authorization(url: &Url) -> Option<String> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair: Vec<u8> = percent_decode_str(url.username()).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(url.password().unwrap_or_default()));
    Some(format!("Basic {}", STANDARD.encode(pair)))
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn urls_are_parsed_like_browsers_do() {
        #[rustfmt::skip]
        let cases = [
            ("plain",                   "http://h.x/a.png", "http://h.x", "/a.png"),
            ("no path",                 "http://h.x", "http://h.x", "/"),
            ("only a query",            "http://h.x?q=1", "http://h.x", "/?q=1"),
            ("fragment",                "http://h.x/a#f", "http://h.x", "/a"),
            ("default port",            "https://h.x:443/a", "https://h.x", "/a"),
            ("other port",              "https://h.x:80/a", "https://h.x:80", "/a"),
            ("credentials",             "http://u:p@h.x/a", "http://h.x", "/a"),
            ("two at signs",            "http://a@b@h.x/", "http://h.x", "/"),
            ("backslash",               "http://h.x\\@evil/", "http://h.x", "/@evil/"),
            ("case of the host",        "http://H.X/A", "http://h.x", "/A"),
            ("last dot",                "http://h.x./", "http://h.x.", "/"),
            ("other script",            "http://b\u{fc}cher.x/\u{fc}", "http://xn--bcher-kva.x", "/%C3%BC"),
            ("full-width letters",      "http://\u{ff48}.x/", "http://h.x", "/"),
            ("hexadecimal address",     "http://0x7f000001/", "http://127.0.0.1", "/"),
            ("decimal address",         "http://2130706433/", "http://127.0.0.1", "/"),
            ("octal address",           "http://0177.0.0.1/", "http://127.0.0.1", "/"),
            ("short address",           "http://127.1/", "http://127.0.0.1", "/"),
            ("address, last dot",       "http://127.0.0.1./", "http://127.0.0.1", "/"),
            ("percent-encoded host",    "http://%31%32%37.1/", "http://127.0.0.1", "/"),
            ("IPv6",                    "http://[::1]:8/a", "http://[::1]:8", "/a"),
            ("mapped address",          "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]", "/"),
            ("space in the path",       "http://h.x/a b.png?c d", "http://h.x", "/a%20b.png?c%20d"),
            ("dots in the path",        "http://h.x/a/../b", "http://h.x", "/b"),
            ("odd characters",          "http://h.x/{a}|\"b\"?<c>'", "http://h.x", "/%7Ba%7D|%22b%22?%3Cc%3E%27"),
        ];
        for (name, text, origin, path) in cases {
            let target = Target::parse(text).unwrap();
            let uri = target.uri().unwrap();
            let sent = uri.path_and_query().unwrap().as_str();
            assert_eq!((origin, path), (target.origin().as_str(), sent), "{name}");
            let dialled = format!(
                "{}://{}",
                uri.scheme_str().unwrap(),
                uri.authority().unwrap()
            );
            assert_eq!(origin, dialled, "{name}");
        }
    }

    #[test]
    fn invalid_urls_are_refused() {
        #[rustfmt::skip]
        let cases = [
            "http://", "http:///", "https://:80/", "http://h.x:99999/", "http://h.x:a/", "http://[::1/",
            "http://[::1%25eth0]/",
            "http://a b/", "http://1.2.3.4.5/", "http://256.1.1.1/", "http://h%00.x/", "http://h<x/",
        ];
        for text in cases {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn explicit_ports_are_kept() {
        #[rustfmt::skip]
        let cases = [
            ("http://h.x/",         None),
            ("http://h.x:80/",      Some(80)),
            ("https://h.x:443/",    Some(443)),
            ("https://h.x/:443",    None),
            ("http://u:81@h.x/",    None),
            ("http://[::1]:80/",    Some(80)),
            ("http://h.x:8080/",    Some(8080)),
        ];
        for (text, expected) in cases {
            assert_eq!(
                expected,
                Target::parse(text).unwrap().explicit_port(),
                "{text}"
            );
        }
    }

    #[test]
    fn explicit_ports_of_redirects_are_kept() {
        #[rustfmt::skip]
        let cases = [
            ("absolute",               "http://h.x/",     "http://e.x:80/",   Some(80)),
            ("absolute, upper case",   "http://h.x/",     "HTTP://e.x:80/",   Some(80)),
            ("without scheme",         "http://h.x/",     "//e.x:80/",        Some(80)),
            ("without scheme or port", "http://h.x:80/",  "//e.x/",           None),
            ("relative",               "http://h.x:80/",  "/c",               Some(80)),
            ("relative, without port", "http://h.x/",     "./c:80",             None),
            ("other scheme",           "http://h.x/",     "https://h.x:443/", Some(443)),
            ("port of other scheme",   "https://h.x/",    "http://h.x:443/",  Some(443)),
            ("scheme without slashes", "http://h.x:80/a", "http:c",           Some(80)),
        ];
        for (name, from, location, expected) in cases {
            let target = Target::parse(from).unwrap().follow(location).unwrap();
            assert_eq!(expected, target.explicit_port(), "{name}");
        }
    }

    #[test]
    fn redirects_keep_credentials_for_the_same_origin() {
        const FROM: &str = "https://u:p@h.x/a/b?q";
        #[rustfmt::skip]
        let cases = [
            ("relative",              "c",                         "https://h.x/a/c",     true),
            ("absolute path",         "/c?d",                      "https://h.x/c?d",     true),
            ("up",                    "../../../c",                "https://h.x/c",       true),
            ("same origin",           "https://h.x:443/c",         "https://h.x/c",       true),
            ("other scheme",          "http://h.x/c",              "http://h.x/c",        false),
            ("other port",            "https://h.x:1/c",           "https://h.x:1/c",     false),
            ("other host",            "//e.x/c",                   "https://e.x/c",       false),
            ("other host, backslash", "\\\\e.x/c",                 "https://e.x/c",       false),
            ("own credentials",       "https://o:w@h.x/c",         "https://h.x/c",       true),
        ];
        for (name, location, expected, authorized) in cases {
            let target = Target::parse(FROM).unwrap().follow(location).unwrap();
            assert_eq!(expected, target.uri().unwrap().to_string(), "{name}");
            assert_eq!(authorized, target.authorization().is_some(), "{name}");
        }
        for location in [
            "file:///etc/passwd",
            "data:,x",
            "ftp://h.x/",
            "javascript:0",
            "https://",
            "//",
        ] {
            assert!(
                Target::parse(FROM).unwrap().follow(location).is_err(),
                "{location}"
            );
        }
    }

    #[test]
    fn credentials_become_basic_authorization() {
        #[rustfmt::skip]
        let cases = [
            ("none",             "http://h.x/",             None),
            ("user",             "http://u@h.x/",           Some("Basic dTo=")),
            ("password",         "http://:p@h.x/",          Some("Basic OnA=")),
            ("both",             "http://u:p@h.x/",         Some("Basic dTpw")),
            ("encoded",          "http://u%40:%3Ap@h.x/",   Some("Basic dUA6OnA=")),
        ];
        for (name, text, expected) in cases {
            assert_eq!(
                expected,
                Target::parse(text).unwrap().authorization().as_deref(),
                "{name}"
            );
        }
    }

    proptest::proptest! {
        /// For any URL, the host that the client sends is the host that was parsed.
        #[test]
        fn the_client_sends_the_parsed_host(rest in "[a-z0-9@:/?#\\\\\\[\\]%.\u{e4} ]{0,30}") {
            if let Ok(target) = Target::parse(&format!("http://{rest}"))
                && let Ok(uri) = target.uri()
            {
                proptest::prop_assert_eq!(target.host().to_string(), uri.host().unwrap());
                proptest::prop_assert_eq!(target.port(), uri.port_u16().unwrap_or(80));
            }
        }
    }
}
