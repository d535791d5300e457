//! Short responses: valid ones give bytes, and others give errors.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

use super::{
    error_of, fetch, open,
    server::{Server, answer, ok},
};

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Each response is sent literally, and then the connection is closed. Over 40 lines: one row per kind.
#[test]
fn responses_give_bytes_or_errors() {
    let truncated = gzip(b"pixels")[..15].to_vec();
    let two = [gzip(b"pix"), gzip(b"els")].concat();
    let encoded =
        |name: &str, body: &[u8]| answer("200 OK", &format!("Content-Encoding: {name}\r\n"), body);
    let many_headers = "X-Flood: 1\r\n".repeat(10_000);
    let long_header = format!("X-Flood: {}\r\n", "1".repeat(1 << 20));
    #[rustfmt::skip]
    let cases = [
        ("known length",         ok(b"pixels"), Ok("pixels")),
        ("chunks",
            answer("200 OK", "Transfer-Encoding: chunked\r\n", b"3\r\npix\r\n3\r\nels\r\n0\r\n\r\n"), Ok("pixels")),
        ("until it closes",      answer("200 OK", "", b"pixels"), Ok("pixels")),
        ("HTTP/1.0",             b"HTTP/1.0 200 OK\r\n\r\npixels".to_vec(), Ok("pixels")),
        ("another 2xx status",   answer("203 Non-Authoritative Information", "", b"pixels"), Ok("pixels")),
        ("type is ignored",      answer("200 OK", "Content-Type: text/html\r\n", b"<html>"), Ok("<html>")),
        ("more than declared",   answer("200 OK", "Content-Length: 3\r\n", b"pixels"), Ok("pix")),
        ("gzip",                 encoded("gzip", &gzip(b"pixels")), Ok("pixels")),
        ("gzip, old name, case", encoded("X-GZip", &gzip(b"pixels")), Ok("pixels")),
        ("gzip in two parts",    encoded("gzip", &two), Ok("pixels")),
        ("identity",             encoded("identity", b"pixels"), Ok("pixels")),
        ("unknown label",        encoded("aws-chunked", b"pixels"), Ok("pixels")),
        ("truncated gzip",       encoded("gzip", &truncated), Err("read {origin}: ")),
        ("not really gzip",      encoded("gzip", b"pixels, as they are"), Err("read {origin}: invalid gzip header")),
        ("not requested",        encoded("br", b"pixels"), Err("GET {origin}: unexpected content encoding `br`")),
        ("less than declared",   answer("200 OK", "Content-Length: 7\r\n", b"pixels"),
            Err("read {origin}: Peer disconnected")),
        ("truncated chunk",      answer("200 OK", "Transfer-Encoding: chunked\r\n", b"9\r\npixels"),
            Err("read {origin}: Peer disconnected")),
        ("invalid chunk",        answer("200 OK", "Transfer-Encoding: chunked\r\n", b"x\r\npixels"),
            Err("read {origin}: ")),
        ("no content",           answer("204 No Content", "", b""),
            Err("GET {origin}: status 204 No Content with an empty body")),
        ("empty",                ok(b""), Err("GET {origin}: status 200 OK with an empty body")),
        ("forbidden, with text", answer("403 Forbidden", "Content-Type: text/plain\r\n", b"not for you"),
            Err("GET {origin}: status 403 Forbidden")),
        ("not found",            answer("404 Not Found", "", b""), Err("GET {origin}: status 404 Not Found")),
        ("server error",         answer("500 Internal Server Error", "", b"pixels"),
            Err("GET {origin}: status 500 Internal Server Error")),
        ("not modified",         answer("304 Not Modified", "", b""), Err("GET {origin}: status 304 Not Modified")),
        ("no response",          Vec::new(), Err("GET {origin}: ")),
        ("not HTTP",             b"220 mail.example ready\r\n\r\n".to_vec(), Err("GET {origin}: ")),
        ("truncated head",       b"HTTP/1.1 200 OK\r\nContent-Le".to_vec(), Err("GET {origin}: ")),
        ("too many headers",     answer("200 OK", &many_headers, b"pixels"), Err("GET {origin}: ")),
        ("too long a header",    answer("200 OK", &long_header, b"pixels"), Err("GET {origin}: ")),
    ];
    for (name, bytes, expected) in cases {
        let server = Server::closing(bytes);
        let got = fetch(&open(), &server.url("/a.png"));
        match expected {
            Ok(body) => assert_eq!(Ok(body.as_bytes().to_vec()), got, "{name}"),
            Err(words) => {
                let words = words.replace("{origin}", &format!("http://{}", server.address));
                let words = format!("media fetch: {words}");
                let error = got.expect_err(name);
                assert!(error.starts_with(&words), "{name}: {error}");
            }
        }
    }
}

/// The server keeps the connection open, and the client does not wait for it to close.
#[test]
fn a_complete_response_ends_the_fetch() {
    let server = Server::canned(ok(b"pixels"));
    assert_eq!(Ok(b"pixels".to_vec()), fetch(&open(), &server.url("/")));
    server.next().sent.unwrap();
}

#[test]
fn request_has_the_expected_headers() {
    let server = Server::closing(ok(b"pixels"));
    fetch(&open(), &server.url("/a b.png")).unwrap();
    let head = server.next().head.to_lowercase();
    let version = env!("CARGO_PKG_VERSION");
    for line in [
        "get /a%20b.png?signature=hunter2 http/1.1",
        &format!("host: {}", server.address),
        "authorization: basic dxnlcjpodw50zxiy",
        "accept-encoding: gzip",
        &format!("user-agent: sglang-mm/{version}"),
    ] {
        assert!(head.lines().any(|other| other == line), "{line} in {head}");
    }
}

#[test]
fn a_refused_connection_is_an_error() {
    let server = Server::closing(ok(b""));
    let url = server.url("/");
    drop(server);
    let error = super::error_of(&open(), &url);
    assert!(error.contains("refused"), "{error}");
}

/// An error repeats only the start of a long source.
#[test]
fn errors_for_long_urls_are_short() {
    let host = format!("http://{}.invalid/", "a".repeat(60_000));
    let path = format!("http://127.0.0.1:1/{}", "a".repeat(10_000_000));
    #[rustfmt::skip]
    let cases = [
        ("a host", host, "media fetch: GET http://aaaa"),
        ("a path", path, "media fetch: malformed URL: 10000019 bytes are more than a request can hold"),
    ];
    for (name, url, words) in cases {
        let error = error_of(&open(), &url);
        assert!(error.starts_with(words), "{name}: {error}");
    }
}
