//! Redirects: which are followed, how far, and what goes along.

use std::{io::Write, time::Instant};

use super::{
    SECRET, fetch, open, refusal,
    server::{Server, answer, found, ok},
};

/// `/5` leads to `/4` and so on; `/0` answers.
fn countdown() -> Server {
    Server::start(|head, stream| {
        let left: u32 = head
            .split(['/', '?', ' '])
            .nth(2)
            .and_then(|text| text.parse().ok())
            .unwrap();
        match left.checked_sub(1) {
            Some(next) => stream.write_all(&found(&format!("/{next}"))),
            None => stream.write_all(&ok(b"pixels")),
        }
    })
}

#[test]
fn five_hops_are_followed_and_six_are_not() {
    let server = countdown();
    let six_requests = || (0..6).for_each(|_| drop(server.next()));
    assert_eq!(Ok(b"pixels".to_vec()), fetch(&open(), &server.url("/5")));
    six_requests();

    let error = refusal(&open(), &server.url("/6"));
    assert_eq!(
        format!(
            "media fetch: GET http://{}: more than 5 redirects",
            server.address
        ),
        error
    );
    // The sixth answer still came, and nothing was asked after it.
    six_requests();
    assert_eq!(0, server.rest());
}

#[test]
fn a_loop_ends_quickly() {
    let server = Server::closing(found("/"));
    let start = Instant::now();
    assert!(refusal(&open(), &server.url("/")).ends_with("more than 5 redirects"));
    assert!(start.elapsed().as_secs() < 10);
}

#[test]
fn every_kind_that_has_a_destination() {
    let goal = Server::closing(ok(b"pixels"));
    for status in [
        "301 Moved",
        "302 Found",
        "303 See Other",
        "307 Temporary",
        "308 Permanent",
    ] {
        let location = format!(
            "Location: http://{}/\r\nContent-Length: 0\r\n",
            goal.address
        );
        let server = Server::closing(answer(status, &location, b""));
        assert_eq!(
            Ok(b"pixels".to_vec()),
            fetch(&open(), &server.url("/")),
            "{status}"
        );
    }
}

/// A body of a redirect is not waited for, nor a head that announces one.
#[test]
fn a_redirect_with_a_body() {
    let goal = Server::closing(ok(b"pixels"));
    let head = format!(
        "Location: http://{}/\r\nContent-Length: 1000000\r\n",
        goal.address
    );
    let server = Server::canned(answer("302 Found", &head, b"moved"));
    assert_eq!(Ok(b"pixels".to_vec()), fetch(&open(), &server.url("/")));
    server.next().sent.unwrap();
}

#[test]
fn destinations_that_are_refused() {
    let scheme = "x".repeat(5000);
    let cut = format!(
        "redirect to a `{}... (5000 characters):` URL is refused",
        &scheme[..200]
    );
    let scheme = format!("{scheme}://h.x/");
    #[rustfmt::skip]
    let cases = [
        ("a file",        "file:///etc/passwd",               "redirect to a `file:` URL is refused"),
        ("data",          "data:,cGl4ZWxz",                   "redirect to a `data:` URL is refused"),
        ("ftp",           "ftp://127.0.0.1/a.png",            "redirect to a `ftp:` URL is refused"),
        ("no scheme",     &scheme,                            &cut),
        ("no URL",        "http://[::1",                      "redirect to a malformed URL: invalid IPv6 address"),
        ("no host",       "https://",                         "redirect to a malformed URL: empty host"),
    ];
    for (name, location, words) in cases {
        let server = Server::closing(found(location));
        let error = refusal(&open(), &server.url("/"));
        assert_eq!(
            format!("media fetch: GET http://{}: {words}", server.address),
            error,
            "{name}"
        );
    }
    for (name, head) in [
        ("no Location", ""),
        ("a Location beyond text", "Location: /\u{0}\r\n"),
    ] {
        let server = Server::closing(answer("302 Found", head, b""));
        assert!(fetch(&open(), &server.url("/")).is_err(), "{name}");
    }
    let server = Server::closing(b"HTTP/1.1 302 Found\r\nLocation: /\xe9\r\n\r\n".to_vec());
    assert!(
        refusal(&open(), &server.url("/"))
            .ends_with("status 302 Found with a Location that is not UTF-8")
    );
    let server = Server::closing(answer("302 Found", "", b""));
    assert!(refusal(&open(), &server.url("/")).ends_with("status 302 Found without a Location"));
}

/// Credentials stay with the origin that they were given for.
#[test]
fn credentials_do_not_travel() {
    let stranger = Server::closing(ok(b"pixels"));
    let location = format!("http://{}/", stranger.address);
    let server = Server::start(move |head, stream| {
        let leads = if head.starts_with("GET /again") {
            location.as_str()
        } else {
            "/again"
        };
        stream.write_all(&found(leads))
    });
    fetch(&open(), &server.url("/")).unwrap();
    let authorized = |head: String| head.to_lowercase().contains("authorization");
    assert_eq!(
        (true, true),
        (
            authorized(server.next().head),
            authorized(server.next().head)
        )
    );
    let head = stranger.next().head;
    assert!(
        !authorized(head.clone()) && !head.contains(SECRET),
        "{head}"
    );
}
