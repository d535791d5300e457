//! Answers that fit in one packet: which are bytes and which are errors.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

use super::{
    fetch, open, refusal,
    server::{Server, answer, ok},
};

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Sent as they stand; the connection closes after them.
#[test]
fn of_each_kind() {
    let cut = gzip(b"pixels")[..15].to_vec();
    let two = [gzip(b"pix"), gzip(b"els")].concat();
    let encoded =
        |name: &str, body: &[u8]| answer("200 OK", &format!("Content-Encoding: {name}\r\n"), body);
    let many = "X-Flood: 1\r\n".repeat(10_000);
    let wide = format!("X-Flood: {}\r\n", "1".repeat(1 << 20));
    #[rustfmt::skip]
    let cases = [
        ("known length",         ok(b"pixels"),                                                            Ok("pixels")),
        ("chunks",               answer("200 OK", "Transfer-Encoding: chunked\r\n", b"3\r\npix\r\n3\r\nels\r\n0\r\n\r\n"), Ok("pixels")),
        ("until it closes",      answer("200 OK", "", b"pixels"),                                          Ok("pixels")),
        ("HTTP/1.0",             b"HTTP/1.0 200 OK\r\n\r\npixels".to_vec(),                                Ok("pixels")),
        ("another good status",  answer("203 Non-Authoritative Information", "", b"pixels"),               Ok("pixels")),
        ("a page is bytes too",  answer("200 OK", "Content-Type: text/html\r\n", b"<html>"),               Ok("<html>")),
        ("more than announced",  answer("200 OK", "Content-Length: 3\r\n", b"pixels"),                     Ok("pix")),
        ("gzip",                 encoded("gzip", &gzip(b"pixels")),                                        Ok("pixels")),
        ("gzip, old name, case", encoded("X-GZip", &gzip(b"pixels")),                                      Ok("pixels")),
        ("gzip in two parts",    encoded("gzip", &two),                                                    Ok("pixels")),
        ("identity",             encoded("identity", b"pixels"),                                           Ok("pixels")),
        ("a label of a store",   encoded("aws-chunked", b"pixels"),                                        Ok("pixels")),
        ("gzip, cut",            encoded("gzip", &cut),                                                    Err("media fetch: read {origin}: ")),
        ("gzip that is none",    encoded("gzip", b"pixels, as they are"),                                               Err("media fetch: read {origin}: invalid gzip header")),
        ("not asked for",        encoded("br", b"pixels"),                                                 Err("media fetch: GET {origin}: unexpected content encoding `br`")),
        ("less than announced",  answer("200 OK", "Content-Length: 7\r\n", b"pixels"),                     Err("media fetch: read {origin}: Peer disconnected")),
        ("chunks, cut",          answer("200 OK", "Transfer-Encoding: chunked\r\n", b"9\r\npixels"),       Err("media fetch: read {origin}: Peer disconnected")),
        ("chunks, nonsense",     answer("200 OK", "Transfer-Encoding: chunked\r\n", b"x\r\npixels"),       Err("media fetch: read {origin}: ")),
        ("no content",           answer("204 No Content", "", b""),                                        Err("media fetch: GET {origin}: status 204 No Content with an empty body")),
        ("empty",                ok(b""),                                                                  Err("media fetch: GET {origin}: status 200 OK with an empty body")),
        ("forbidden, in words",  answer("403 Forbidden", "Content-Type: text/plain\r\n", b"not for you"),  Err("media fetch: GET {origin}: status 403 Forbidden")),
        ("not found",            answer("404 Not Found", "", b""),                                         Err("media fetch: GET {origin}: status 404 Not Found")),
        ("server error",         answer("500 Internal Server Error", "", b"pixels"),                       Err("media fetch: GET {origin}: status 500 Internal Server Error")),
        ("not modified",         answer("304 Not Modified", "", b""),                                      Err("media fetch: GET {origin}: status 304 Not Modified")),
        ("no answer",            Vec::new(),                                                               Err("media fetch: GET {origin}: ")),
        ("no HTTP",              b"220 mail.example ready\r\n\r\n".to_vec(),                               Err("media fetch: GET {origin}: ")),
        ("head cut",             b"HTTP/1.1 200 OK\r\nContent-Le".to_vec(),                                Err("media fetch: GET {origin}: ")),
        ("too many headers",     answer("200 OK", &many, b"pixels"),                                       Err("media fetch: GET {origin}: ")),
        ("too wide a header",    answer("200 OK", &wide, b"pixels"),                                       Err("media fetch: GET {origin}: ")),
    ];
    for (name, bytes, expected) in cases {
        let server = Server::closing(bytes);
        let got = fetch(&open(), &server.url("/a.png"));
        match expected {
            Ok(body) => assert_eq!(Ok(body.as_bytes().to_vec()), got, "{name}"),
            Err(words) => {
                let words = words.replace("{origin}", &format!("http://{}", server.address));
                let error = got.expect_err(name);
                assert!(error.starts_with(&words), "{name}: {error}");
            }
        }
    }
}

/// The server keeps the connection open, and we do not wait for it.
#[test]
fn a_complete_answer_is_enough() {
    let server = Server::canned(ok(b"pixels"));
    assert_eq!(Ok(b"pixels".to_vec()), fetch(&open(), &server.url("/")));
    server.next().sent.unwrap();
}

#[test]
fn what_is_asked() {
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
        assert!(head.lines().any(|one| one == line), "{line} in {head}");
    }
}

#[test]
fn nobody_listens() {
    let server = Server::closing(ok(b""));
    let url = server.url("/");
    drop(server);
    let error = super::refusal(&open(), &url);
    assert!(error.contains("refused"), "{error}");
}

/// What is repeated of a source is its beginning.
#[test]
fn long_urls() {
    let host = format!("http://{}.invalid/", "a".repeat(60_000));
    let path = format!("http://127.0.0.1:1/{}", "a".repeat(10_000_000));
    #[rustfmt::skip]
    let cases = [
        ("a host", host, "media fetch: GET http://aaaa"),
        ("a path", path, "media fetch: malformed URL: 10000019 bytes are more than a request can hold"),
    ];
    for (name, url, words) in cases {
        let error = refusal(&open(), &url);
        assert!(error.starts_with(words), "{name}: {error}");
    }
}
