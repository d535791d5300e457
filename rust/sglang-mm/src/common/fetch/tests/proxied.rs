//! Requests through a proxy: forwarded, tunnelled or refused.

use std::{
    io::{self, Write},
    net::TcpStream,
    thread,
};

use super::{
    SECRET, closed, error_of, fetch, open,
    server::{Server, answer, found, ok},
};
use crate::common::fetch::{FetchPolicy, HostList, Reach, proxies::Proxies};

/// A proxy that responds itself to requests to forward, and really tunnels.
pub(super) fn proxy() -> Server {
    Server::start(|head, stream| {
        let mut words = head.split(' ');
        match (words.next(), words.next()) {
            (Some("CONNECT"), Some(target)) => tunnel(stream, &TcpStream::connect(target)?),
            (Some("GET"), Some(url)) if url.starts_with("http://") => stream.write_all(&ok(
                format!("forwarded {}", url.split('?').next().unwrap()).as_bytes(),
            )),
            _ => stream.write_all(&answer("400 Bad Request", "", b"")),
        }
    })
}

fn tunnel(client: &mut TcpStream, target: &TcpStream) -> io::Result<()> {
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut up, mut to) = (client.try_clone()?, target.try_clone()?);
    let upward = thread::spawn(move || {
        let _ = io::copy(&mut up, &mut to);
        to.shutdown(std::net::Shutdown::Write)
    });
    io::copy(&mut &*target, client)?;
    client.shutdown(std::net::Shutdown::Both)?;
    let _ = upward.join();
    Ok(())
}

type Variables<'a> = &'a [(&'a str, &'a str)];

/// The policy with these proxy variables, in which `{proxy}` is replaced by the address of `proxy`.
pub(super) fn through(
    policy: FetchPolicy,
    proxy: &Server,
    variables: Variables<'_>,
) -> FetchPolicy {
    let address = proxy.address.to_string();
    let proxies = Proxies::from_variables(|requested| {
        let found = variables.iter().find(|(name, _)| *name == requested);
        found.map(|(_, value)| value.replace("{proxy}", &address))
    });
    FetchPolicy {
        proxies: Some(proxies),
        ..policy
    }
}

#[test]
fn a_plain_request_is_forwarded_with_its_whole_url() {
    let proxy = proxy();
    let variables = [("http_proxy", &*format!("http://us%65r:{SECRET}@{{proxy}}"))];
    let policy = through(open(), &proxy, &variables);
    // This name cannot be resolved, and does not have to be.
    let got = fetch(
        &policy,
        &format!("http://images.invalid:81/a b.png?signature={SECRET}"),
    );
    assert_eq!(
        Ok(b"forwarded http://images.invalid:81/a%20b.png".to_vec()),
        got
    );
    let head = proxy.next().head.to_lowercase();
    assert!(head.contains("\r\nhost: images.invalid:81\r\n"), "{head}");
    assert!(
        head.contains("\r\nproxy-authorization: basic dxnlcjpodw50zxiy\r\n"),
        "{head}"
    );
}

#[test]
fn variables_choose_the_route() {
    let (proxy, server) = (proxy(), Server::closing(ok(b"direct")));
    #[rustfmt::skip]
    let cases: &[(&str, Variables, &str)] = &[
        ("no variables",        &[],                                                              "direct"),
        ("http",                &[("http_proxy", "http://{proxy}")],                              "forwarded"),
        ("upper case, no scheme", &[("HTTP_PROXY", "{proxy}")],                                   "forwarded"),
        ("all",                 &[("all_proxy", "http://{proxy}")],                               "forwarded"),
        ("not for this scheme", &[("https_proxy", "http://{proxy}")],                             "direct"),
        ("bypassed",            &[("http_proxy", "http://{proxy}"), ("NO_PROXY", "127.0.0.0/8")], "direct"),
        ("bypass elsewhere",    &[("http_proxy", "http://{proxy}"), ("NO_PROXY", "10.0.0.0/8")],  "forwarded"),
        ("empty no_proxy",      &[("http_proxy", "http://{proxy}"), ("no_proxy", ""), ("NO_PROXY", "*")], "forwarded"),
    ];
    for (name, variables, expected) in cases {
        let got = fetch(&through(open(), &proxy, variables), &server.url("/")).unwrap();
        assert!(
            got.starts_with(expected.as_bytes()),
            "{name}: {}",
            String::from_utf8_lossy(&got)
        );
    }
}

/// The route is chosen for each request.
#[test]
fn a_redirect_may_use_the_proxy_after_a_direct_request() {
    let (proxy, server) = (proxy(), Server::closing(found("http://images.invalid/")));
    let policy = through(
        open(),
        &proxy,
        &[("http_proxy", "{proxy}"), ("no_proxy", "127.0.0.1")],
    );
    assert_eq!(
        Ok(b"forwarded http://images.invalid/".to_vec()),
        fetch(&policy, &server.url("/"))
    );
}

#[test]
fn proxy_errors_are_reported() {
    #[rustfmt::skip]
    let cases = [
        ("refuses",   answer("407 Proxy Authentication Required", "Content-Length: 0\r\n", b""),
            "http://images.invalid/", "status 407 Proxy Authentication Required"),
        ("no tunnel", answer("403 Forbidden", "Content-Length: 0\r\n", b""), "https://images.invalid/",
            "CONNECT proxy failed: proxy server responded 403/403"),
    ];
    for (name, bytes, url, words) in cases {
        let proxy = Server::closing(bytes);
        let policy = through(
            open(),
            &proxy,
            &[("all_proxy", &format!("http://user:{SECRET}@{{proxy}}"))],
        );
        let error = error_of(&policy, url);
        assert!(error.ends_with(words), "{name}: {error}");
    }
    let policy = through(
        open(),
        &proxy(),
        &[("all_proxy", &format!("socks5://user:{SECRET}@{{proxy}}"))],
    );
    assert!(error_of(&policy, "http://images.invalid/").contains("only http and https proxies"));
}

/// The address of the proxy is not checked, but the address of the requested host is.
#[test]
fn the_closed_policy_checks_the_host_behind_a_proxy() {
    let proxy = proxy();
    let variables = [("all_proxy", "{proxy}")];
    for host in ["127.0.0.1", "169.254.169.254", "[::1]", "localhost"] {
        for scheme in ["http", "https"] {
            let error = error_of(
                &through(closed(), &proxy, &variables),
                &format!("{scheme}://{host}/"),
            );
            assert!(
                error.ends_with("it has an address that is not global"),
                "{host}: {error}"
            );
        }
    }
    assert_eq!(0, proxy.unread_count());
    assert_eq!(
        Ok(b"forwarded http://8.8.8.8/".to_vec()),
        fetch(&through(closed(), &proxy, &variables), "http://8.8.8.8/")
    );
    // Trusted by name, so the name is not resolved here.
    let reach = Reach::Global {
        also: HostList::parse("images.invalid"),
    };
    let trusting = through(FetchPolicy { reach, ..closed() }, &proxy, &variables);
    assert_eq!(
        Ok(b"forwarded http://images.invalid/".to_vec()),
        fetch(&trusting, "http://images.invalid/")
    );
}
