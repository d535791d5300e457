//! Lists of hosts in the syntax of `NO_PROXY`. The host lists of a policy use the same syntax.
//!
//! Entries are separated by commas. White space around them, leading dots and case are ignored.
//! `*` matches every host. `a.b.c.d/bits` (or an IPv6 network) matches addresses in that network,
//! and an address matches itself. `host:port` matches the host with that port only. A name matches
//! itself and its subdomains: `internal` matches `a.internal` but not `notinternal`.
//!
//! Invariant: names are compared as text and never resolved.

use std::net::IpAddr;

use url::Host;

use super::address::same_prefix;

/// A list of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Every,
    Network(IpAddr, u32),
    Name { name: String, port: Option<u16> },
    Address { address: IpAddr, port: Option<u16> },
}

impl HostList {
    /// Parses a list. Empty entries are skipped, and invalid entries match nothing.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let entries = text
            .split(',')
            .map(|entry| entry.trim().trim_start_matches('.'));
        Self(
            entries
                .filter(|entry| !entry.is_empty())
                .map(Entry::parse)
                .collect(),
        )
    }

    /// Whether the list matches `host` with the explicit port `port`.
    pub(super) fn contains(&self, host: &Host<&str>, port: Option<u16>) -> bool {
        self.0.iter().any(|entry| entry.matches(host, port))
    }
}

impl Entry {
    fn parse(text: &str) -> Self {
        if text == "*" {
            return Self::Every;
        }
        if let Some((address, bits)) = network(text) {
            return Self::Network(address, bits);
        }
        // Tried before the port is split off, because an IPv6 address has colons itself.
        if let Some(address) = bare_address(text) {
            return Self::Address {
                address,
                port: None,
            };
        }
        let (host, port) = split_port(text);
        match bare_address(host) {
            Some(address) => Self::Address { address, port },
            None => Self::Name {
                name: host.trim_end_matches('.').to_lowercase(),
                port,
            },
        }
    }

    fn matches(&self, host: &Host<&str>, requested: Option<u16>) -> bool {
        let port_matches = |port: &Option<u16>| port.is_none() || *port == requested;
        match (self, address(host)) {
            (Self::Every, _) => true,
            (Self::Network(network, bits), Some(address)) => same_prefix(address, *network, *bits),
            (Self::Address { address, port }, Some(requested)) => {
                *address == requested && port_matches(port)
            }
            (Self::Name { name, port }, None) => is_or_is_below(host, name) && port_matches(port),
            _ => false,
        }
    }
}

/// Whether `host` is `name` or a subdomain of it. Both are lower-case.
fn is_or_is_below(host: &Host<&str>, name: &str) -> bool {
    let Host::Domain(host) = host else {
        return false;
    };
    host.strip_suffix('.')
        .unwrap_or(host)
        .strip_suffix(name)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn address(host: &Host<&str>) -> Option<IpAddr> {
    match host {
        Host::Ipv4(address) => Some((*address).into()),
        Host::Ipv6(address) => Some((*address).into()),
        Host::Domain(_) => None,
    }
}

fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/')?;
    let address = bare_address(address)?;
    let max_bits = if address.is_ipv4() { 32 } else { 128 };
    bits.parse()
        .ok()
        .filter(|bits| *bits <= max_bits)
        .map(|bits| (address, bits))
}

/// An address. An IPv6 address may have brackets.
fn bare_address(text: &str) -> Option<IpAddr> {
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

/// The host, and the port after the last colon.
fn split_port(text: &str) -> (&str, Option<u16>) {
    let split = text.rsplit_once(':');
    match split.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::HostList;
    use url::Url;

    /// Whether a list matches the host and explicit port of a URL.
    fn contains(list: &str, url: &str) -> bool {
        let url = Url::parse(url).unwrap();
        HostList::parse(list).contains(&url.host().unwrap(), url.port())
    }

    /// Over 40 lines: one row per kind of entry.
    #[test]
    fn entries_match_hosts() {
        #[rustfmt::skip]
        let cases = [
            ("an empty list",                "",                    "http://a.b",             false),
            ("empty entries",                " , ,",                "http://a.b",             false),
            ("every host",                   "x, *",                "http://a.b",             true),
            ("every address",                "*",                   "http://[::1]",           true),
            ("the host itself",              "a.b",                 "http://a.b",             true),
            ("a subdomain",                  "internal",            "http://x.a.internal",    true),
            ("not at a dot",                 "internal",            "http://notinternal",     false),
            ("a parent domain",              "a.internal",          "http://internal",        false),
            ("a leading dot",                ".svc",                "http://x.svc",           true),
            ("a leading dot, itself",        ".svc",                "http://svc",             true),
            ("case of the entry",            "A.Internal",          "http://a.internal",      true),
            ("case of the host",             "a.internal",          "http://A.INTERNAL",      true),
            ("white space",                  " x ,\ta.b ",          "http://a.b",             true),
            ("a host with a last dot",       "a.b",                 "http://a.b.",            true),
            ("an entry with a last dot",     "a.b.",                "http://a.b",             true),
            ("with the port",                "a.b:8080",            "http://a.b:8080",        true),
            ("with the port, a subdomain",   "b:8080",              "http://a.b:8080",        true),
            ("with another port",            "a.b:8080",            "http://a.b:8081",        false),
            ("port not explicit in the URL", "a.b:80",              "http://a.b",             false),
            ("any port",                     "a.b",                 "http://a.b:8080",        true),
            ("a port beyond 16 bits",        "a.b:99999",           "http://a.b",             false),
            ("an address",                   "10.0.0.7",            "http://10.0.0.7:1",      true),
            ("an address, oddly spelled",    "127.0.0.1",           "http://0x7f000001",      true),
            ("another address",              "10.0.0.7",            "http://10.0.0.70",       false),
            ("an address with its port",     "10.0.0.7:81",         "http://10.0.0.7:81",     true),
            ("an address, other port",       "10.0.0.7:81",         "http://10.0.0.7:82",     false),
            ("no name ends in an address",   "0.0.7",               "http://10.0.0.7",        false),
            ("in the network",               "10.0.0.0/8",          "http://10.9.8.7",        true),
            ("outside the network",          "10.0.0.0/8",          "http://11.0.0.0",        false),
            ("host bits in the network",     "10.1.2.3/8",          "http://10.9.8.7",        true),
            ("a network of one",             "10.0.0.7/32",         "http://10.0.0.7",        true),
            ("a network of one, neighbour",  "10.0.0.7/32",         "http://10.0.0.6",        false),
            ("all of IPv4",                  "0.0.0.0/0",           "http://200.1.1.1",       true),
            ("a name is in no network",      "0.0.0.0/0",           "http://a.b",             false),
            ("IPv6 is not in IPv4",          "0.0.0.0/0",           "http://[::1]",           false),
            ("bits beyond 32",               "10.0.0.0/33",         "http://10.0.0.0",        false),
            ("bits that are not a number",   "10.0.0.0/x",          "http://10.0.0.0",        false),
            ("IPv6",                         "::1",                 "http://[::1]:9",         true),
            ("IPv6 in brackets",             "[::1]",               "http://[::1]",           true),
            ("IPv6 with its port",           "[::1]:9",             "http://[::1]:9",         true),
            ("IPv6, other port",             "[::1]:9",             "http://[::1]:8",         false),
            ("IPv6, other spelling",         "0:0:0:0:0:0:0:1",     "http://[::1]",           true),
            ("IPv6, its end is not a port",  "::1:9",               "http://[::1]:9",         false),
            ("IPv6 network",                 "fd00::/8",            "http://[fd12::3]",       true),
            ("outside the IPv6 network",     "fd00::/8",            "http://[fe80::3]",       false),
            ("userinfo is not a host",       "evil",                "http://evil@good.x",     false),
            ("a backslash ends the host",    "evil",                "http://good.x\\@evil",   false),
            ("international name",           "xn--bcher-kva.x",     "http://b\u{fc}cher.x",   true),
        ];
        for (name, list, url, expected) in cases {
            assert_eq!(expected, contains(list, url), "{name}: {list} and {url}");
        }
    }
}
