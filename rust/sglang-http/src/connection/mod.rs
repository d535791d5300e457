//! A connection whose client has shut down its sending half.
//!
//! Such a client may still read. On the socket it looks like a client that has disconnected: both
//! give an end of stream. The server can tell them apart only by sending something: the kernel of
//! a client that has disconnected answers with RST. hyper drops the request at an end of stream.
//! So while a complete request waits for its response, this module withholds the end of stream
//! from hyper and [probes](probes) the client.
//!
//! Invariant: hyper sees the end of stream as soon as no response is in progress. It sees a
//! disconnect when the kernel reports RST.
//!
//! Limits: this applies only to HTTP/1.1. An HTTP/1.0 client does not know interim responses, and
//! HTTP/2 ends its streams itself. If a client pipelines another request and disconnects, its end
//! of stream comes after unread bytes, so the disconnect is found when the response is written.

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

pub(crate) use exchange::Exchange;
use exchange::Phase;
use probes::{INTERIM, Probes};

/// The byte stream of a connection, between the socket and hyper.
///
/// hyper takes the end of a response body, writes it and flushes it in one poll, and only then
/// reads the next request. So unsent bytes of a response exist only if the last write blocked.
pub(crate) struct Connection {
    stream: TcpStream,
    exchange: Exchange,
    probes: Probes,
    /// Whether the end of stream was deferred by one poll, so that hyper can first handle the bytes
    /// that it has already read.
    end_was_deferred: bool,
    /// Completes when the kernel reports RST. Set at the client's end of stream.
    reset: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, exchange: Exchange) -> Self {
        Self {
            stream,
            exchange,
            probes: Probes::new(Phase::Idle),
            end_was_deferred: false,
            reset: None,
        }
    }

    /// Probes a client after its end of stream, and waits until it has disconnected.
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
        // Blocked bytes cause an RST as a probe does, and a probe must not be written between them.
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
            // The response may be complete now. Then hyper must see the end of stream.
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
