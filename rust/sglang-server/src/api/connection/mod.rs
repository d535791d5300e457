//! A connection whose client has said all that it will.
//!
//! A client may shut its sending half and go on reading. One that has left looks the same
//! to whoever reads, until something is sent to it: then its system resets the
//! connection. So while a whole request waits for its answer, the end of what the client
//! sends is kept from HTTP, and the client is sent, a few times, what every client passes
//! over: an interim `100 Continue` before the answer, a comment between events.
//!
//! Invariant: HTTP learns that a client sends no more as soon as no answer is on its way,
//! and that it has left when its system says so, which takes a probe where it had shut its
//! sending half before. HTTP/1.1 alone is meant: an HTTP/1.0 client knows no interim
//! answers, and HTTP/2 has ends of its own.
//!
//! What comes behind a request is looked at when it is answered, so a client that sends
//! more and leaves is found out by the answer.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::ConnectInfo,
    http::{Request, Response, Version},
};
use futures_util::FutureExt as _;
use hyper::{
    body::{Frame, Incoming, SizeHint},
    service::Service as _,
};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use super::events;

/// What is sent before an answer.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How often it is sent for one answer: some clients give up after five. They are sent
/// after 0, 1, 3, 7 and 15 s; later the system's own probes tell.
const PROBES: u32 = 5;

/// How far request and answer of one connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// No whole request is here, or its answer is out.
    Open,
    /// A whole request is here, and no answer yet.
    Asked,
    /// The answer has begun.
    Answering,
}

/// What a connection and the answers on it know of each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange(Arc<State>);

#[derive(Debug, Default)]
struct State {
    phase: AtomicU8,
    /// Whether the client may be sent what it must pass over.
    may_probe: AtomicBool,
    /// Whether it shall be sent a comment.
    comment: AtomicBool,
    /// Whether what was to be sent did not all go out.
    is_blocked: AtomicBool,
    /// Whether several requests are answered at a time, which HTTP/2 counts by itself.
    is_http2: AtomicBool,
}

impl Exchange {
    /// Has `routes` answer `request`, and knows how far that is.
    pub(super) async fn answer(
        self,
        routes: TowerToHyperService<Router>,
        mut request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response<Body>, Infallible> {
        request.extensions_mut().insert(ConnectInfo(peer));
        if request.version() == Version::HTTP_2 {
            self.0.is_http2.store(true, Ordering::Relaxed);
            return routes.call(request).await;
        }
        let is_current = request.version() == Version::HTTP_11;
        self.0.may_probe.store(is_current, Ordering::Relaxed);
        if request.body().is_end_stream() {
            self.set(Phase::Asked);
        }
        let exchange = self.clone();
        let response = routes
            .call(request.map(|body| Asking { body, exchange }))
            .await?;
        self.set(Phase::Answering);
        let is_events = events::are_in(&response);
        Ok(response.map(|body| {
            Body::new(Answering {
                body,
                is_events,
                exchange: self,
            })
        }))
    }

    /// Whether the client has something to get.
    pub(super) fn is_busy(&self) -> bool {
        let State {
            is_blocked,
            is_http2,
            ..
        } = self.0.as_ref();
        self.phase() != Phase::Open
            || is_blocked.load(Ordering::Relaxed)
            || is_http2.load(Ordering::Relaxed)
    }

    fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::Relaxed) {
            phase if phase == Phase::Open as u8 => Phase::Open,
            phase if phase == Phase::Asked as u8 => Phase::Asked,
            _ => Phase::Answering,
        }
    }

    fn set(&self, phase: Phase) {
        self.0.phase.store(phase as u8, Ordering::Relaxed);
    }
}

/// The body of a request: at its end the client has asked.
struct Asking {
    body: Incoming,
    exchange: Exchange,
}

impl HttpBody for Asking {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.exchange.set(Phase::Asked);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Asking {
    /// Whoever answers has seen enough of it.
    fn drop(&mut self) {
        if self.exchange.phase() == Phase::Open {
            self.exchange.set(Phase::Asked);
        }
    }
}

/// The body of an answer: without it, the exchange is over.
struct Answering {
    body: Body,
    is_events: bool,
    exchange: Exchange,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_events && self.exchange.0.comment.swap(false, Ordering::Relaxed) {
            return Poll::Ready(Some(Ok(Frame::data(events::COMMENT))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.exchange.0.comment.store(false, Ordering::Relaxed);
        self.exchange.set(Phase::Open);
    }
}

/// The bytes of a connection.
///
/// hyper writes and flushes in the turn in which it takes the end of an answer, and looks
/// for another request after it: `is_blocked` tells of all that has not gone out.
pub(super) struct Connection {
    stream: TcpStream,
    exchange: Exchange,
    probes: Probes,
    /// Whether HTTP has had a turn since the last answer, for what it has read already.
    has_had_turn: bool,
    /// The reset of a connection whose client sends no more.
    reset: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// What a client was sent during one answer to tell whether it has left.
struct Probes {
    phase: Phase,
    sent: u32,
    next: Option<Pin<Box<Sleep>>>,
}

impl Probes {
    fn new(phase: Phase) -> Self {
        Self {
            phase,
            sent: 0,
            next: None,
        }
    }

    /// Whether it is time for one; otherwise the task wakes when it is.
    fn poll_due(&mut self, context: &mut Context<'_>) -> bool {
        let due = match &mut self.next {
            None => self.sent == 0,
            Some(next) => next.as_mut().poll(context).is_ready(),
        };
        if due {
            let pause = Duration::from_secs(1 << self.sent);
            self.sent += 1;
            self.next = (self.sent < PROBES).then(|| Box::pin(sleep(pause)));
            // To be woken by it. It cannot be over yet; if it is, the next turn sees it.
            if let Some(next) = &mut self.next
                && next.as_mut().poll(context).is_ready()
            {
                context.waker().wake_by_ref();
            }
        }
        due
    }
}

impl Connection {
    pub(super) fn new(stream: TcpStream, exchange: Exchange) -> Self {
        Self {
            stream,
            exchange,
            probes: Probes::new(Phase::Open),
            has_had_turn: false,
            reset: None,
        }
    }

    fn is_blocked(&self) -> bool {
        self.exchange.0.is_blocked.load(Ordering::Relaxed)
    }

    /// The client sends no more, and an answer is on its way: waits until it has left.
    fn poll_left(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.probe(context)?;
        let reset = if let Some(reset) = &mut self.reset {
            reset
        } else {
            let twin = twin(&self.stream)?;
            let reset = async move { drop(twin.ready(Interest::ERROR).await) };
            self.reset.insert(Box::pin(reset.fuse()))
        };
        let left = reset.as_mut().poll(context);
        left.map(|()| Err(io::ErrorKind::ConnectionReset.into()))
    }

    /// Sends what has a client's system answer if it has left.
    fn probe(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let phase = self.exchange.phase();
        if phase != self.probes.phase {
            self.probes = Probes::new(phase);
        }
        // What is on its way out does that, too, and nothing may come between.
        if self.is_blocked() || !self.probes.poll_due(context) {
            return Ok(());
        }
        match phase {
            Phase::Open => Ok(()),
            Phase::Asked => match self.stream.try_write(INTERIM) {
                Ok(sent) if sent < INTERIM.len() => Err(io::ErrorKind::WriteZero.into()),
                // Where it does not go out, the answer's own bytes will tell.
                _ => Ok(()),
            },
            Phase::Answering => {
                self.exchange.0.comment.store(true, Ordering::Relaxed);
                // For the answer, which the same task sends.
                context.waker().wake_by_ref();
                Ok(())
            }
        }
    }

    /// Something went out, or did not.
    fn sent(
        &mut self,
        context: &Context<'_>,
        sent: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let is_blocked = &self.exchange.0.is_blocked;
        is_blocked.store(sent.is_pending(), Ordering::Relaxed);
        if self.reset.is_some() && sent.is_ready() {
            // Whoever reads may have to learn now that nothing more comes.
            context.waker().wake_by_ref();
        }
        sent
    }
}

/// The same connection once more, to wait for what reading does not tell.
fn twin(stream: &TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(SockRef::from(stream).try_clone()?.into())
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let is_end = buffer.filled().len() == before && buffer.remaining() > 0;
        if !is_end {
            return Poll::Ready(Ok(()));
        }
        let may_probe = self.exchange.0.may_probe.load(Ordering::Relaxed);
        if may_probe && (self.is_blocked() || self.exchange.phase() != Phase::Open) {
            self.has_had_turn = false;
            return self.poll_left(context);
        }
        if !self.has_had_turn {
            self.has_had_turn = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.sent(context, sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.sent(context, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
