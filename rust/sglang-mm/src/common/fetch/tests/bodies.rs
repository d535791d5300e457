//! Long, endless and slow bodies.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};

use super::{
    budgeted, error_of, fetch, open,
    server::{Server, answer, ok, wait_for_close},
};
use crate::common::fetch::{ByteBudget, FetchPolicy, MAX_FETCH_BYTES};

static PIECE: [u8; 1 << 16] = [7; 1 << 16];

/// A server that sends a head and then `len` bytes.
fn sending(head: &'static str, len: u64) -> Server {
    Server::start(move |_, stream| {
        stream.write_all(&answer("200 OK", head, b""))?;
        io::copy(&mut io::repeat(7).take(len), stream)?;
        wait_for_close(stream)
    })
}

/// Sends chunks until the client closes the connection.
fn send_endless_chunks(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&answer("200 OK", "Transfer-Encoding: chunked\r\n", b""))?;
    loop {
        stream.write_all(b"10000\r\n")?;
        stream.write_all(&PIECE)?;
        stream.write_all(b"\r\n")?;
    }
}

fn over_cap(server: &Server) -> String {
    format!(
        "media fetch: http://{}: exceeds 67108864 bytes",
        server.address
    )
}

#[test]
fn the_response_cap_is_exact() {
    let exact = sending("Content-Length: 67108864\r\n", MAX_FETCH_BYTES);
    let body = fetch(&open(), &exact.url("/")).unwrap();
    assert!(body.len() as u64 == MAX_FETCH_BYTES && body.iter().all(|byte| *byte == 7));

    let more = sending("Content-Length: 67108865\r\n", MAX_FETCH_BYTES + 1);
    assert_eq!(over_cap(&more), error_of(&open(), &more.url("/")));
}

/// The client closes the connection at the cap, so the server's next write fails.
#[test]
fn endless_bodies_stop_at_the_cap() {
    let chunked = Server::start(|_, stream| send_endless_chunks(stream));
    assert_eq!(over_cap(&chunked), error_of(&open(), &chunked.url("/")));
    assert!(chunked.next().sent.is_err());

    let endless = sending("", u64::MAX);
    assert_eq!(over_cap(&endless), error_of(&open(), &endless.url("/")));
    assert!(endless.next().sent.is_err());
}

/// A declared length limits what is read, but is not trusted for allocation.
#[test]
fn wrong_content_lengths_are_handled() {
    let short = sending("Content-Length: 1\r\n", 100 << 20);
    assert_eq!(Ok(vec![7]), fetch(&open(), &short.url("/")));
    assert!(short.next().sent.is_err());

    let long = Server::closing(answer(
        "200 OK",
        "Content-Length: 9000000000000000000\r\n",
        b"pixels",
    ));
    let error = error_of(&open(), &long.url("/"));
    assert!(error.ends_with("Peer disconnected"), "{error}");
}

/// The cap applies to the decompressed bytes.
#[test]
fn a_decompression_bomb_stops_at_the_cap() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    io::copy(&mut io::repeat(0).take(MAX_FETCH_BYTES + 1), &mut encoder).unwrap();
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    let server = Server::closing(answer("200 OK", "Content-Encoding: gzip\r\n", &bomb));
    assert_eq!(over_cap(&server), error_of(&open(), &server.url("/")));
}

fn impatient() -> FetchPolicy {
    FetchPolicy {
        timeout: Some(Duration::from_millis(300)),
        ..open()
    }
}

/// Sends `byte` again and again until the client closes the connection.
fn drip(stream: &mut TcpStream, byte: u8) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    loop {
        stream.write_all(&[byte])?;
        match stream.read(&mut [0]) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other.map(drop),
        }
    }
}

/// Each server waits for the client to give up.
#[test]
fn slow_servers_time_out() {
    type Answer = fn(&str, &mut TcpStream) -> io::Result<()>;
    let cases: [(&str, Answer); 5] = [
        ("accepts and never responds", |_, stream| {
            wait_for_close(stream)
        }),
        ("half a head", |_, stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-")?;
            wait_for_close(stream)
        }),
        ("head byte by byte", |_, stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nX-Drip: ")?;
            drip(stream, b'x')
        }),
        ("half a body", |_, stream| {
            stream.write_all(&answer("200 OK", "Content-Length: 10\r\n", b"pix"))?;
            wait_for_close(stream)
        }),
        ("body byte by byte", |_, stream| {
            stream.write_all(&answer("200 OK", "", b""))?;
            drip(stream, 7)
        }),
    ];
    for (name, slow) in cases {
        let server = Server::start(slow);
        let start = Instant::now();
        let error = error_of(&impatient(), &server.url("/"));
        let words = format!(
            "media fetch: GET http://{}: timed out after 300ms (REQUEST_TIMEOUT)",
            server.address
        );
        assert_eq!(words, error, "{name}");
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{name}: {:?}",
            start.elapsed()
        );
        let _ = server.next();
    }
}

/// The timeout is for all requests together. No single one is slow.
#[test]
fn redirects_share_one_deadline() {
    let server = Server::start(|_, stream| {
        // Waits for 120 of the 300 milliseconds, or until the client closes.
        stream.set_read_timeout(Some(Duration::from_millis(120)))?;
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.write_all(&super::server::found("/again"))
            }
            other => other.map(drop),
        }
    });
    let error = error_of(&impatient(), &server.url("/"));
    assert!(
        error.ends_with("timed out after 300ms (REQUEST_TIMEOUT)"),
        "{error}"
    );
}

#[test]
fn extreme_timeouts_are_handled() {
    let server = Server::closing(ok(b"pixels"));
    let forever = FetchPolicy {
        timeout: Some(Duration::MAX),
        ..open()
    };
    assert_eq!(Ok(b"pixels".to_vec()), fetch(&forever, &server.url("/")));
    let never = FetchPolicy {
        timeout: Some(Duration::ZERO),
        ..open()
    };
    assert!(error_of(&never, &server.url("/")).ends_with("timed out after 0ns (REQUEST_TIMEOUT)"));
}

#[test]
fn the_budget_is_charged_exactly() {
    let server = Server::closing(ok(&[7; 1000]));
    let get = |budget: &ByteBudget| open().fetch(&server.url("/"), budget);
    assert_eq!(1000, budgeted(get, 1000).unwrap().len());
    assert_eq!(
        format!(
            "media fetch: http://{}: exceeds the request media byte budget",
            server.address
        ),
        budgeted(get, 999).unwrap_err()
    );
}

/// Eight threads share a budget for five responses: exactly five succeed.
#[test]
fn threads_share_a_budget() {
    let server = Server::closing(ok(&vec![7; 300_000]));
    let budget = ByteBudget::new(5 * 300_000 + 299_999);
    let url = server.url("/");
    let succeeded = thread::scope(|scope| {
        let fetches: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| open().fetch(&url, &budget).is_ok()))
            .collect();
        fetches
            .into_iter()
            .map(|fetch| fetch.join().unwrap())
            .filter(|ok| *ok)
            .count()
    });
    assert_eq!((5, 299_999), (succeeded, budget.remaining()));
}
