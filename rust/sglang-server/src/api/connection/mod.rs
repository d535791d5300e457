//! A connection whose client has shut down its sending half.
//!
//! A client may do so and go on reading. To a reader of the socket, such a client looks like one
//! that has disconnected: both deliver an end of stream. The two differ only when the server
//! sends something, because the kernel of a client that has gone answers with RST. So while a
//! complete request waits for its response, the end of stream is withheld from hyper, which
//! would drop the request, and the client is [probed](probes).
//!
//! Invariant: hyper sees the end of stream as soon as no response is in progress. It sees a
//! disconnect when the kernel reports RST.
//!
//! Limits: only HTTP/1.1 is treated so. An HTTP/1.0 client does not know interim responses, and
//! HTTP/2 ends its streams itself. If a client pipelines another request and disconnects, its end
//! of stream is behind unread bytes, so the disconnect is found when the response is written.

mod exchange;
mod probes;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::FutureExt as _;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

pub(super) use exchange::Exchange;
use exchange::Phase;
use probes::{INTERIM, Probes};

/// The byte stream of a connection, between the socket and hyper.
///
/// hyper writes and flushes in the same poll in which it takes the end of a response body, and
/// reads the next request afterwards. So bytes of a response can be unsent only if the last
/// write blocked.
pub(super) struct Connection {
    stream: TcpStream,
    exchange: Exchange,
    probes: Probes,
    /// Whether the end of stream was deferred by one poll, so that hyper could handle the bytes
    /// that it had read before.
    end_was_deferred: bool,
    /// Completes when the kernel reports RST. Set once the client sends no more.
    reset: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, exchange: Exchange) -> Self {
        Self {
            stream,
            exchange,
            probes: Probes::new(Phase::Idle),
            end_was_deferred: false,
            reset: None,
        }
    }

    /// Probes a client that sends no more, and waits until it has disconnected.
    fn poll_disconnect(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.probe(context)?;
        let reset = if let Some(reset) = &mut self.reset {
            reset
        } else {
            let duplicate = duplicate(&self.stream)?;
            let reset = async move { drop(duplicate.ready(Interest::ERROR).await) };
            self.reset.insert(Box::pin(reset.fuse()))
        };
        let disconnected = reset.as_mut().poll(context);
        disconnected.map(|()| Err(io::ErrorKind::ConnectionReset.into()))
    }

    /// Sends a probe if one is due.
    fn probe(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let phase = self.exchange.phase();
        self.probes.enter(phase);
        // Blocked bytes provoke RST as a probe does, and a probe must not come between them.
        if self.exchange.is_blocked() || !self.probes.poll_due(context) {
            return Ok(());
        }
        match phase {
            Phase::Idle => Ok(()),
            Phase::Waiting => match self.stream.try_write(INTERIM) {
                Ok(sent) if sent < INTERIM.len() => Err(io::ErrorKind::WriteZero.into()),
                // If the write fails, writing the response fails too and reports it.
                _ => Ok(()),
            },
            Phase::Responding => {
                self.exchange.request_comment();
                // This task polls the response body, which sends the comment.
                context.waker().wake_by_ref();
                Ok(())
            }
        }
    }

    /// Records whether a write blocked.
    fn record_write(
        &mut self,
        context: &Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.exchange.set_blocked(written.is_pending());
        if self.reset.is_some() && written.is_ready() {
            // The response may be complete now: then the reader must see the end of stream.
            context.waker().wake_by_ref();
        }
        written
    }
}

/// A second handle of the same socket. Waiting on it for RST does not compete with reads.
fn duplicate(stream: &TcpStream) -> io::Result<TcpStream> {
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
        let in_progress = self.exchange.is_blocked() || self.exchange.phase() != Phase::Idle;
        if self.exchange.may_probe() && in_progress {
            self.end_was_deferred = false;
            return self.poll_disconnect(context);
        }
        if !self.end_was_deferred {
            self.end_was_deferred = true;
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
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.record_write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.record_write(context, written)
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
