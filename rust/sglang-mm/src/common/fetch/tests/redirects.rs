//! Redirects: which are followed, how many, and which headers are kept.

use std::{io::Write, time::Instant};

use super::{
    SECRET, error_of, fetch, open,
    server::{Server, answer, found, ok},
};

/// A server that redirects `/5` to `/4` and so on. `/0` gives the body.
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
fn five_redirects_are_followed_and_six_are_not() {
    let server = countdown();
    let six_requests = || (0..6).for_each(|_| drop(server.next()));
    assert_eq!(Ok(b"pixels".to_vec()), fetch(&open(), &server.url("/5")));
    six_requests();

    let error = error_of(&open(), &server.url("/6"));
    assert_eq!(
        format!(
            "media fetch: GET http://{}: more than 5 redirects",
            server.address
        ),
        error
    );
    // The sixth response was received, and no request followed.
    six_requests();
    assert_eq!(0, server.unread_count());
}

#[test]
fn a_redirect_loop_ends_quickly() {
    let server = Server::closing(found("/"));
    let start = Instant::now();
    assert!(error_of(&open(), &server.url("/")).ends_with("more than 5 redirects"));
    assert!(start.elapsed().as_secs() < 10);
}

#[test]
fn every_redirect_status_is_followed() {
    let target = Server::closing(ok(b"pixels"));
    for status in [
        "301 Moved",
        "302 Found",
        "303 See Other",
        "307 Temporary",
        "308 Permanent",
    ] {
        let location = format!(
            "Location: http://{}/\r\nContent-Length: 0\r\n",
            target.address
        );
        let server = Server::closing(answer(status, &location, b""));
        assert_eq!(
            Ok(b"pixels".to_vec()),
            fetch(&open(), &server.url("/")),
            "{status}"
        );
    }
}

/// The redirect declares a long body, which is neither read nor waited for.
#[test]
fn the_body_of_a_redirect_is_ignored() {
    let target = Server::closing(ok(b"pixels"));
    let head = format!(
        "Location: http://{}/\r\nContent-Length: 1000000\r\n",
        target.address
    );
    let server = Server::canned(answer("302 Found", &head, b"moved"));
    assert_eq!(Ok(b"pixels".to_vec()), fetch(&open(), &server.url("/")));
    server.next().sent.unwrap();
}

#[test]
fn invalid_redirects_are_refused() {
    let scheme = "x".repeat(5000);
    let shortened = format!(
        "redirect to a `{}... (5000 characters):` URL is refused",
        &scheme[..200]
    );
    let scheme = format!("{scheme}://h.x/");
    #[rustfmt::skip]
    let cases = [
        ("a file",        "file:///etc/passwd",               "redirect to a `file:` URL is refused"),
        ("data",          "data:,cGl4ZWxz",                   "redirect to a `data:` URL is refused"),
        ("ftp",           "ftp://127.0.0.1/a.png",            "redirect to a `ftp:` URL is refused"),
        ("long scheme",   &scheme,                            &shortened),
        ("not a URL",     "http://[::1",                      "redirect to a malformed URL: invalid IPv6 address"),
        ("no host",       "https://",                         "redirect to a malformed URL: empty host"),
    ];
    for (name, location, words) in cases {
        let server = Server::closing(found(location));
        let error = error_of(&open(), &server.url("/"));
        assert_eq!(
            format!("media fetch: GET http://{}: {words}", server.address),
            error,
            "{name}"
        );
    }
    for (name, head) in [
        ("no Location", ""),
        ("a zero byte in the Location", "Location: /\u{0}\r\n"),
    ] {
        let server = Server::closing(answer("302 Found", head, b""));
        assert!(fetch(&open(), &server.url("/")).is_err(), "{name}");
    }
    let server = Server::closing(b"HTTP/1.1 302 Found\r\nLocation: /\xe9\r\n\r\n".to_vec());
    assert!(
        error_of(&open(), &server.url("/"))
            .ends_with("status 302 Found with a Location that is not UTF-8")
    );
    let server = Server::closing(answer("302 Found", "", b""));
    assert!(error_of(&open(), &server.url("/")).ends_with("status 302 Found without a Location"));
}

/// Credentials are sent only to the origin for which they were given.
#[test]
fn credentials_are_not_sent_to_another_origin() {
    let other = Server::closing(ok(b"pixels"));
    let location = format!("http://{}/", other.address);
    let server = Server::start(move |head, stream| {
        let location = if head.starts_with("GET /again") {
            location.as_str()
        } else {
            "/again"
        };
        stream.write_all(&found(location))
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
    let head = other.next().head;
    assert!(
        !authorized(head.clone()) && !head.contains(SECRET),
        "{head}"
    );
}
