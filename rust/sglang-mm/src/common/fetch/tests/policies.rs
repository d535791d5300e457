//! What the closed policy allows, at the first request and at each redirect.

use std::{
    cell::Cell,
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use super::{
    closed, error_of, fetch, isolated, open,
    server::{Server, found, ok},
};
use crate::common::fetch::{FetchPolicy, HostList, Reach, dial::Dialler};

thread_local! {
    /// The number of lookups in this test.
    static LOOKUPS: Cell<u32> = const { Cell::new(0) };
}

/// Resolves the host names of these tests. The servers are at `local.test`.
fn lookup(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let earlier_lookups = LOOKUPS.replace(LOOKUPS.get() + 1);
    let addresses: &[[u8; 4]] = match name {
        "mixed.test" => &[[8, 8, 8, 8], [10, 0, 0, 1]],
        "metadata.test" => &[[169, 254, 169, 254]],
        // Global at the first lookup and loopback later. That global address is unused.
        "rebinding.test" if earlier_lookups == 0 => &[[192, 0, 1, 1]],
        "rebinding.test" | "local.test" | "local.test." => &[[127, 0, 0, 1]],
        "empty.test" => &[],
        _ => return Err(io::Error::other("no such name")),
    };
    Ok(addresses
        .iter()
        .map(|ip| (Ipv4Addr::from(*ip), port).into())
        .collect())
}

fn with_names(policy: FetchPolicy) -> FetchPolicy {
    FetchPolicy {
        dialler: Dialler {
            lookup,
            trust: None,
        },
        ..policy
    }
}

fn reaching(reach: Reach) -> FetchPolicy {
    with_names(FetchPolicy { reach, ..closed() })
}

const REFUSED: &str = "this host is not allowed";
const NOT_GLOBAL: &str = "this host is not allowed: it has an address that is not global";

/// Many spellings of this machine's address, and names that resolve to addresses in its network.
#[rustfmt::skip]
const NOT_GLOBAL_HOSTS: &[&str] = &[
    "127.0.0.1", "0x7f000001", "0x7f.1", "127.1", "2130706433", "0177.0.0.1", "127.0.0.1.", "0",
    "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]", "[fd00:ec2::254]", "10.0.0.1", "169.254.169.254", "192.168.0.1", "172.16.0.1", "100.64.0.1",
    "%31%32%37.0.0.1", "0x7f.0x0.0x0.0x1", "017700000001", "00000177.0.0.1", "\u{ff11}27.0.0.1", "\u{2460}27.0.0.1",
    "127\u{3002}0.0.1", "127.0.0.1\u{ad}", "12\t7.0.0.1", "/127.0.0.1", "\\127.0.0.1", "[::ffff:0:127.0.0.1]",
    "[::ffff:169.254.169.254]", "[64:ff9b:1::127.0.0.1]", "[2001::7f00:1]", "[fe80::1]", "l\u{ff4f}cal.test",
    "local\u{3002}test", "local.test", "local.test.", "LOCAL.test", "mixed.test", "metadata.test",
    "user@local.test", "8.8.8.8@local.test", "8.8.8.8:80@127.0.0.1",
];

#[test]
fn closed_refuses_hosts_that_are_not_global() {
    let server = Server::closing(ok(b"secret"));
    let port = server.address.port();
    let policy = with_names(closed());
    for host in NOT_GLOBAL_HOSTS {
        let error = error_of(&policy, &format!("http://{host}:{port}/"));
        assert!(error.ends_with(NOT_GLOBAL), "{host}: {error}");
    }
    let error = error_of(&policy, &format!("http://localhost.test:{port}/"));
    assert!(
        error.ends_with("name resolution failed: no such name"),
        "{error}"
    );
    assert_eq!(0, server.unread_count());
}

/// Uses the system's resolver.
#[test]
fn closed_refuses_localhost() {
    let error = error_of(&closed(), "http://localhost:1/");
    assert!(error.ends_with(NOT_GLOBAL), "{error}");
}

#[test]
fn a_name_without_addresses_is_an_error() {
    for policy in [with_names(open()), with_names(closed())] {
        let error = error_of(&policy, "http://empty.test/");
        assert!(
            error.contains("http://empty.test: name resolution failed"),
            "{error}"
        );
    }
}

/// The checked address is the one that is dialled.
#[test]
fn a_name_is_resolved_once() {
    let server = Server::closing(ok(b"secret"));
    let policy = FetchPolicy {
        timeout: Some(Duration::from_millis(200)),
        ..with_names(closed())
    };
    let error = error_of(
        &policy,
        &format!("http://rebinding.test:{}/", server.address.port()),
    );
    assert!(!error.ends_with(NOT_GLOBAL), "{error}");
    assert_eq!((1, 0), (LOOKUPS.get(), server.unread_count()));
}

/// The name is resolved once for dialling and is sent in the `Host` header.
#[test]
fn a_trusted_name_is_dialled_by_address_and_sent_by_name() {
    let server = Server::closing(ok(b"pixels"));
    let policy = reaching(Reach::Global {
        also: HostList::parse("local.test"),
    });
    let authority = format!("local.test:{}", server.address.port());
    assert_eq!(
        Ok(b"pixels".to_vec()),
        fetch(&policy, &format!("http://{authority}/"))
    );
    assert!(
        server
            .next()
            .head
            .to_lowercase()
            .contains(&format!("host: {authority}\r\n"))
    );
    assert_eq!(1, LOOKUPS.get());
}

#[test]
fn reach_decides_by_host_list() {
    let server = Server::closing(ok(b"pixels"));
    let port = server.address.port();
    let global = |also: &str| Reach::Global {
        also: HostList::parse(also),
    };
    let only = |hosts: &str| Reach::Only(HostList::parse(hosts));
    let with_port = format!("local.test:{port}");
    #[rustfmt::skip]
    let cases = [
        ("anywhere",                      Reach::Anywhere,       "local.test", None),
        ("anywhere, an address",          Reach::Anywhere,       "127.0.0.1",  None),
        ("trusted beside the global",     global("local.test"),  "local.test", None),
        ("trusted by its parent domain",  global("test"),        "local.test", None),
        ("trusted with its port",         global(&with_port),    "local.test", None),
        ("trusted on another port",       global("local.test:1"), "local.test", Some(NOT_GLOBAL)),
        ("trusted address",               global("127.0.0.0/8"), "127.1",      None),
        ("a name is not its address",     global("127.0.0.0/8"), "local.test", Some(NOT_GLOBAL)),
        ("an address is not its name",    global("local.test"),  "127.0.0.1",  Some(NOT_GLOBAL)),
        ("only, listed",                  only("local.test"),    "local.test", None),
        ("only, not listed",              only("other.test"),    "local.test", Some(REFUSED)),
        ("only, global and not listed",   only("other.test"),    "8.8.8.8",    Some(REFUSED)),
        ("only, none",                    only(""),              "local.test", Some(REFUSED)),
        ("only, listed as userinfo",      only("other.test"),    "other.test@local.test", Some(REFUSED)),
        ("only, listed after a backslash", only("other.test"),   "local.test\\@other.test", Some(REFUSED)),
    ];
    for (name, reach, host, expected) in cases {
        let got = fetch(&reaching(reach), &format!("http://{host}:{port}/"));
        match expected {
            None => assert_eq!(Ok(b"pixels".to_vec()), got, "{name}"),
            Some(words) => {
                let error = got.expect_err(name);
                assert!(error.ends_with(words), "{name}: {error}");
            }
        }
    }
}

/// The first host is trusted by name, and the redirect is still checked.
#[test]
fn every_redirect_is_checked() {
    let hidden = Server::closing(ok(b"secret"));
    let port = hidden.address.port();
    let global = || Reach::Global {
        also: HostList::parse("local.test"),
    };
    let only = || Reach::Only(HostList::parse("local.test"));
    #[rustfmt::skip]
    let cases = [
        ("an address",            global(), format!("http://127.0.0.1:{port}/"), NOT_GLOBAL),
        ("IPv6",                  global(), format!("http://[::ffff:127.0.0.1]:{port}/"), NOT_GLOBAL),
        ("a number",              global(), format!("http://2130706433:{port}/"), NOT_GLOBAL),
        ("wide digits",           global(), format!("http://\u{ff11}27.0.0.1:{port}/"), NOT_GLOBAL),
        ("behind a trusted user", global(), format!("http://local.test@127.0.0.1:{port}/"), NOT_GLOBAL),
        ("behind backslashes",    global(), format!("\\\\127.0.0.1:{port}/"), NOT_GLOBAL),
        ("a name",                global(), format!("http://metadata.test:{port}/"), NOT_GLOBAL),
        ("one bad address of two", global(), format!("//mixed.test:{port}/"), NOT_GLOBAL),
        ("a host not listed",     only(), format!("http://other.test:{port}/"), "this host is not allowed"),
        ("a file",                global(), "file:///etc/passwd".to_owned(), "redirect to a `file:` URL is refused"),
    ];
    for (name, reach, location, words) in cases {
        let server = Server::closing(found(&location));
        let error = error_of(
            &reaching(reach),
            &format!("http://local.test:{}/", server.address.port()),
        );
        assert!(error.ends_with(words), "{name}: {error}");
    }
    assert_eq!(0, hidden.unread_count());
}

/// After `with_environment` a fetch reads no variables.
#[test]
fn with_environment_sets_everything_that_is_unset() {
    let policy = FetchPolicy::closed().with_environment();
    assert!(policy.timeout.is_some() && policy.proxies.is_some());
    assert!(policy.dialler.trust.is_some());
    assert_eq!(FetchPolicy::closed().reach, policy.reach);
    let preset = open().with_environment();
    assert_eq!(open().timeout, preset.timeout, "set values are kept");
}

/// The error is the same whether the file exists or not.
#[test]
fn closed_reads_no_files() {
    for source in [
        "/etc/hostname",
        "file:///etc/passwd",
        "file://localhost/etc/passwd#a.png",
        concat!(env!("CARGO_MANIFEST_DIR"), "/absent"),
        "file:///dev/zero",
    ] {
        assert_eq!(
            "media fetch: local files are not allowed here",
            error_of(&isolated(FetchPolicy::closed()), source),
            "{source}"
        );
    }
}
