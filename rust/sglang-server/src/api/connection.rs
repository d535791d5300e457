//! A connection whose client has said all that it will.
//!
//! A client may shut its sending half and go on reading. One that has left looks the same
//! to whoever reads, until something is sent to it: then its system resets the
//! connection. So while a whole request waits for its answer, the end of what the client
//! sends is kept from HTTP, and the client is sent what every client passes over: an
//! interim `100 Continue` before the answer, a comment between events.
//!
//! Invariant: HTTP learns that a client sends no more as soon as no answer is on its way;
//! that it has left, at once. HTTP/1.1 alone is meant: an HTTP/1.0 client knows no interim
//! answers, and HTTP/2 has ends of its own.

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
};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::ConnectInfo,
    http::{Request, Response, Version},
};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use super::events;

/// What is sent before an answer.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// No whole request is here, or its answer is on its way out.
const OPEN: u8 = 0;
/// A whole request is here, and no answer yet.
const ASKED: u8 = 1;
/// The answer has begun.
const ANSWERING: u8 = 2;

/// How far request and answer of one connection are.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange(Arc<State>);

#[derive(Debug, Default)]
struct State {
    phase: AtomicU8,
    /// Whether the client shall be sent a comment.
    comment: AtomicBool,
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
        if request.version() != Version::HTTP_11 {
            return routes.call(request).await;
        }
        if request.body().is_end_stream() {
            self.set(ASKED);
        }
        let exchange = self.clone();
        let response = routes
            .call(request.map(|body| Asking { body, exchange }))
            .await?;
        // Of a request that was refused half read the rest may be missing.
        if self.phase() == ASKED {
            self.set(ANSWERING);
        }
        let is_events = events::are_in(&response);
        Ok(response.map(|body| {
            Body::new(Answering {
                body,
                is_events,
                exchange: self,
            })
        }))
    }

    fn phase(&self) -> u8 {
        self.0.phase.load(Ordering::Relaxed)
    }

    fn set(&self, phase: u8) {
        self.0.phase.store(phase, Ordering::Relaxed);
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
            self.exchange.set(ASKED);
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
        self.exchange.set(OPEN);
    }
}

/// The bytes of a connection.
pub(super) struct Connection {
    stream: TcpStream,
    exchange: Exchange,
    /// Whether what was to be sent did not all go out.
    is_blocked: bool,
    /// In which phase the client was sent something to tell whether it has left.
    probed: u8,
    /// Whether HTTP has had a turn since the last answer, for what it has read already.
    has_had_turn: bool,
    /// The reset of a connection whose client sends no more.
    reset: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, exchange: Exchange) -> Self {
        Self {
            stream,
            exchange,
            is_blocked: false,
            probed: OPEN,
            has_had_turn: false,
            reset: None,
        }
    }

    /// The client sends no more, and an answer is on its way: waits until it has left.
    fn poll_left(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.probe(context);
        let reset = if let Some(reset) = &mut self.reset {
            reset
        } else {
            let twin = twin(&self.stream)?;
            self.reset.insert(Box::pin(async move {
                let _ = twin.ready(Interest::ERROR).await;
            }))
        };
        let left = reset.as_mut().poll(context);
        left.map(|()| Err(io::ErrorKind::ConnectionReset.into()))
    }

    /// Sends what has a client's system answer if it has left, once in a phase.
    fn probe(&mut self, context: &Context<'_>) {
        let phase = self.exchange.phase();
        // What is on its way out does that, too, and nothing may come between.
        if self.is_blocked || phase == self.probed {
            return;
        }
        self.probed = phase;
        if phase == ASKED {
            // Where it does not go out, the answer's own bytes will tell.
            let _ = SockRef::from(&self.stream).send(INTERIM);
        } else if phase == ANSWERING {
            self.exchange.0.comment.store(true, Ordering::Relaxed);
            // For the answer, which the same task sends.
            context.waker().wake_by_ref();
        }
    }

    /// Something went out, or did not.
    fn sent(
        &mut self,
        context: &Context<'_>,
        sent: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.is_blocked = sent.is_pending();
        if self.reset.is_some() && !self.is_blocked {
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
        if self.is_blocked || self.exchange.phase() != OPEN {
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
