//! A small HTTP server that sends exactly the given bytes, valid or not.
//!
//! Each connection has its own thread. Nothing sleeps: a handler waits only for its client, and the
//! result of each connection is sent through a channel.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::SECRET;

/// The result of one connection.
pub(super) struct Ended {
    /// The request as received, up to the empty line.
    pub(super) head: String,
    /// Whether the handler could send its whole response.
    pub(super) sent: io::Result<()>,
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    ended: Receiver<Ended>,
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Calls `answer` with the head of each request.
    pub(super) fn start(
        answer: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::accepting(move |mut stream| {
            let head = read_head(&mut stream);
            let sent = answer(&head, &mut stream);
            Ended { head, sent }
        })
    }

    /// Calls `serve` with each new connection.
    pub(super) fn accepting(serve: impl Fn(TcpStream) -> Ended + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (ends, ended) = mpsc::channel();
        let stopping = Arc::new(AtomicBool::new(false));
        let (stop, serve) = (stopping.clone(), Arc::new(serve));
        let acceptor = thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let (ends, serve, stream) = (ends.clone(), serve.clone(), stream.unwrap());
                thread::spawn(move || ends.send(serve(stream)));
            }
        });
        Self {
            address,
            ended,
            stopping,
            acceptor: Some(acceptor),
        }
    }

    /// Sends these bytes for every request and waits for the client to close.
    pub(super) fn canned(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_, stream| {
            stream.write_all(&answer)?;
            wait_for_close(stream)
        })
    }

    /// Sends these bytes for every request and closes the connection.
    pub(super) fn closing(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_, stream| stream.write_all(&answer))
    }

    /// A URL on this server that contains [`SECRET`].
    pub(super) fn url(&self, path: &str) -> String {
        format!(
            "http://user:{SECRET}@{}{path}?signature={SECRET}",
            self.address
        )
    }

    /// Waits for the next connection to end.
    pub(super) fn next(&self) -> Ended {
        self.ended
            .recv_timeout(Duration::from_mins(1))
            .expect("a connection")
    }

    /// The number of ended connections that `next` did not return.
    pub(super) fn unread_count(&self) -> usize {
        self.ended.try_iter().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes the accept loop.
        let _ = TcpStream::connect(self.address);
        let _ = self.acceptor.take().map(JoinHandle::join);
    }
}

/// Reads up to the empty line.
pub(super) fn read_head(stream: &mut impl Read) -> String {
    let mut head = String::new();
    let mut reader = BufReader::with_capacity(1, stream);
    while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
    head
}

/// Reads until the other side closes.
pub(super) fn wait_for_close(stream: &mut impl Read) -> io::Result<()> {
    match io::copy(stream, &mut io::sink()) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        _ => Ok(()),
    }
}

/// A valid response of known length.
pub(super) fn ok(body: &[u8]) -> Vec<u8> {
    answer(
        "200 OK",
        &format!("Content-Length: {}\r\n", body.len()),
        body,
    )
}

/// A response with a status, headers (each with its line end) and a body.
pub(super) fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    [
        format!("HTTP/1.1 {status}\r\n{headers}\r\n").as_bytes(),
        body,
    ]
    .concat()
}

/// A redirect to `location`.
pub(super) fn found(location: &str) -> Vec<u8> {
    answer(
        "302 Found",
        &format!("Location: {location}\r\nContent-Length: 0\r\n"),
        b"",
    )
}
