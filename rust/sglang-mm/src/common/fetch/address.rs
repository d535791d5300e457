//! Decides which addresses are global: on the public internet, not in this network or host.
//!
//! The tables follow IANA's registries of special-purpose addresses. Addresses in blocks that are
//! not allocated are not global either. An IPv6 address that embeds an IPv4 address is refused.
//! The exception is the well-known NAT64 prefix, through which a host without IPv4 reaches IPv4
//! hosts: there the embedded address decides.
//!
//! Invariant: in case of doubt an address is not global.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address block: the first address and the length of the prefix in bits.
struct Block<A>(A, u32);

#[rustfmt::skip]
const NOT_GLOBAL_V4: [Block<Ipv4Addr>; 16] = [
    Block(Ipv4Addr::UNSPECIFIED, 8),             // this network; unspecified
    Block(Ipv4Addr::new(10, 0, 0, 0), 8),        // private
    Block(Ipv4Addr::new(100, 64, 0, 0), 10),     // shared by carriers (CGNAT)
    Block(Ipv4Addr::new(127, 0, 0, 0), 8),       // loopback
    Block(Ipv4Addr::new(168, 63, 129, 16), 32),  // Azure's host agent, reachable from every virtual machine
    Block(Ipv4Addr::new(169, 254, 0, 0), 16),    // link-local; metadata of most clouds
    Block(Ipv4Addr::new(172, 16, 0, 0), 12),     // private
    Block(Ipv4Addr::new(192, 0, 0, 0), 24),      // protocol assignments
    Block(Ipv4Addr::new(192, 0, 2, 0), 24),      // documentation
    Block(Ipv4Addr::new(192, 88, 99, 0), 24),    // 6to4 relays, deprecated
    Block(Ipv4Addr::new(192, 168, 0, 0), 16),    // private
    Block(Ipv4Addr::new(198, 18, 0, 0), 15),     // benchmarking
    Block(Ipv4Addr::new(198, 51, 100, 0), 24),   // documentation
    Block(Ipv4Addr::new(203, 0, 113, 0), 24),    // documentation
    Block(Ipv4Addr::new(224, 0, 0, 0), 4),       // multicast
    Block(Ipv4Addr::new(240, 0, 0, 0), 4),       // reserved; broadcast
];

/// All global unicast addresses. Loopback, unspecified, IPv4-mapped, IPv4-compatible, unique local,
/// link-local and multicast addresses are outside of it.
const UNICAST_V6: Block<Ipv6Addr> = Block(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// IPv4 addresses behind a NAT64 translator (RFC 6052).
const NAT64: Block<Ipv6Addr> = Block(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

#[rustfmt::skip]
const NOT_GLOBAL_V6: [Block<Ipv6Addr>; 4] = [
    Block(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),      // protocol assignments: Teredo, benchmarking, ORCHID
    Block(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),  // documentation
    Block(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),      // 6to4
    Block(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),      // documentation
];

/// Whether `address` is global unicast.
pub(super) fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_global_v4(v4),
        IpAddr::V6(v6) if NAT64.contains(v6) => is_global_v4(embedded_v4(v6)),
        IpAddr::V6(v6) => {
            UNICAST_V6.contains(v6) && !NOT_GLOBAL_V6.iter().any(|block| block.contains(v6))
        }
    }
}

fn is_global_v4(address: Ipv4Addr) -> bool {
    !NOT_GLOBAL_V4.iter().any(|block| block.contains(address))
}

/// The IPv4 address in the last 32 bits.
fn embedded_v4(address: Ipv6Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits() as u32)
}

impl Block<Ipv4Addr> {
    fn contains(&self, address: Ipv4Addr) -> bool {
        same_prefix(address.into(), self.0.into(), self.1)
    }
}

impl Block<Ipv6Addr> {
    fn contains(&self, address: Ipv6Addr) -> bool {
        same_prefix(address.into(), self.0.into(), self.1)
    }
}

/// Whether two addresses of one family have the same first `bits`.
pub(super) fn same_prefix(a: IpAddr, b: IpAddr, bits: u32) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= bits,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= bits,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_global, same_prefix};
    use std::net::IpAddr;

    /// The first and the last address of each block. Over 40 lines: one row per block.
    #[test]
    fn special_purpose_addresses_are_not_global() {
        #[rustfmt::skip]
        let cases = [
            ("unspecified",               "0.0.0.0",            "0.0.0.0"),
            ("this network",              "0.0.0.1",            "0.255.255.255"),
            ("private, large",            "10.0.0.0",           "10.255.255.255"),
            ("carrier-grade NAT",         "100.64.0.0",         "100.127.255.255"),
            ("metadata of Alibaba",       "100.100.100.200",    "100.100.100.200"),
            ("loopback",                  "127.0.0.0",          "127.255.255.255"),
            ("Azure's host agent",        "168.63.129.16",      "168.63.129.16"),
            ("link-local",                "169.254.0.0",        "169.254.255.255"),
            ("metadata of most clouds",   "169.254.169.254",    "169.254.169.254"),
            ("private, middle",           "172.16.0.0",         "172.31.255.255"),
            ("protocol assignments",      "192.0.0.0",          "192.0.0.255"),
            ("documentation 1",           "192.0.2.0",          "192.0.2.255"),
            ("6to4 relays",               "192.88.99.0",        "192.88.99.255"),
            ("private, small",            "192.168.0.0",        "192.168.255.255"),
            ("benchmarking",              "198.18.0.0",         "198.19.255.255"),
            ("documentation 2",           "198.51.100.0",       "198.51.100.255"),
            ("documentation 3",           "203.0.113.0",        "203.0.113.255"),
            ("multicast",                 "224.0.0.0",          "239.255.255.255"),
            ("reserved",                  "240.0.0.0",          "255.255.255.254"),
            ("broadcast",                 "255.255.255.255",    "255.255.255.255"),
            ("v6 unspecified",            "::",                 "::"),
            ("v6 loopback",               "::1",                "::1"),
            ("v4-compatible",             "::8.8.8.8",          "::127.0.0.1"),
            ("v4-mapped, private",        "::ffff:10.0.0.1",    "::ffff:127.0.0.1"),
            ("v4-mapped, global",         "::ffff:8.8.8.8",     "::ffff:1.1.1.1"),
            ("v4-translated",             "::ffff:0:8.8.8.8",   "::ffff:0:127.0.0.1"),
            ("NAT64 to private",          "64:ff9b::10.0.0.1",  "64:ff9b::169.254.169.254"),
            ("NAT64 of a site",           "64:ff9b:1::",        "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
            ("discard only",              "100::",              "100::ffff:ffff:ffff:ffff"),
            ("not allocated",             "1000::",             "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("Teredo",                    "2001::",             "2001:0:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("v6 benchmarking",           "2001:2::",           "2001:2:0:ffff:ffff:ffff:ffff:ffff"),
            ("ORCHID",                    "2001:10::",          "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("v6 documentation",          "2001:db8::",         "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("6to4 of private",           "2002:a00:1::",       "2002:7f00:1::1"),
            ("6to4",                      "2002::",             "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("v6 documentation, new",     "3fff::",             "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("above unicast",             "4000::",             "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("segment routing",           "5f00::",             "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("unique local",              "fc00::",             "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("metadata of AWS, v6",       "fd00:ec2::254",      "fd00:ec2::254"),
            ("v6 link-local",             "fe80::",             "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("site-local, deprecated",    "fec0::",             "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("v6 multicast",              "ff00::",             "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ];
        for (name, first, last) in cases {
            assert!(!is_global(parse(first)), "{name}: {first}");
            assert!(!is_global(parse(last)), "{name}: {last}");
        }
    }

    /// The neighbours of each block, and some public addresses.
    #[test]
    fn public_addresses_are_global() {
        #[rustfmt::skip]
        let cases = [
            "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
            "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
            "191.255.255.255", "192.0.1.0", "192.0.1.255", "192.0.3.0", "192.88.98.255", "192.88.100.0",
            "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0",
            "203.0.112.255", "203.0.114.0", "223.255.255.255", "8.8.8.8", "93.184.216.34",
            "2000::", "2001:200::", "2001:db7:ffff::1", "2001:db9::", "2001:4860:4860::8888", "2003::",
            "2606:4700::1111",
            "3ffe:ffff::1", "3fff:1000::", "64:ff9b::8.8.8.8",
        ];
        for text in cases {
            assert!(is_global(parse(text)), "{text}");
        }
    }

    #[test]
    fn prefixes_are_compared_by_bits() {
        #[rustfmt::skip]
        let cases = [
            ("all of IPv4",          "1.2.3.4",    "200.0.0.0", 0,   true),
            ("one address",          "1.2.3.4",    "1.2.3.4",   32,  true),
            ("a neighbour",          "1.2.3.5",    "1.2.3.4",   32,  false),
            ("one bit less",         "1.2.3.5",    "1.2.3.4",   31,  true),
            ("families do not mix",  "1.2.3.4",    "::",        0,   false),
            ("all of IPv6",          "2001::",     "::",        0,   true),
            ("one of IPv6",          "::1",        "::1",       128, true),
            ("one bit less, IPv6",   "::2",        "::1",       127, false),
        ];
        for (name, a, b, bits, expected) in cases {
            assert_eq!(expected, same_prefix(parse(a), parse(b), bits), "{name}");
        }
    }

    fn parse(text: &str) -> IpAddr {
        text.parse().unwrap()
    }
}
