//! The phase of the current request and response of a connection.
//!
//! hyper does not report this, so the bodies of request and response are wrapped: a request is
//! complete when its body ends, and an exchange is over when its response body is dropped.

use std::{
    convert::Infallible,
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
    http::{Request, Response, Version, header::CONTENT_TYPE},
};
use hyper::{
    body::{Frame, Incoming, SizeHint},
    service::Service as _,
};
use hyper_util::service::TowerToHyperService;

use crate::EVENT_STREAM;

/// A comment, which clients of an event stream ignore.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// The phase of the request and response of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// No complete request has arrived since the last response.
    Idle,
    /// A complete request has arrived, and its response has not begun.
    Waiting,
    /// The response has begun.
    Responding,
}

/// The state that a connection shares with its requests. Clones share one state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchange(Arc<State>);

#[derive(Debug, Default)]
struct State {
    phase: AtomicU8,
    /// Whether the client accepts interim responses, which HTTP/1.0 does not have.
    may_probe: AtomicBool,
    /// Whether the response body must send a comment before its next event.
    comment: AtomicBool,
    /// Whether the socket did not take all bytes of the last write.
    is_blocked: AtomicBool,
    /// Whether the connection speaks HTTP/2, which tracks its streams itself.
    is_http2: AtomicBool,
}

impl Exchange {
    /// Answers `request` with `routes` and tracks the phase.
    pub(crate) async fn answer(
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
        let is_http11 = request.version() == Version::HTTP_11;
        self.0.may_probe.store(is_http11, Ordering::Relaxed);
        if request.body().is_end_stream() {
            self.set_phase(Phase::Waiting);
        }
        let exchange = self.clone();
        let response = routes
            .call(request.map(|body| RequestBody { body, exchange }))
            .await?;
        self.set_phase(Phase::Responding);
        let is_events = response.headers().get(CONTENT_TYPE) == Some(&EVENT_STREAM);
        Ok(response.map(|body| {
            Body::new(ResponseBody {
                body,
                is_events,
                exchange: self,
            })
        }))
    }

    /// Whether a response is expected or still being sent.
    pub(crate) fn is_busy(&self) -> bool {
        self.phase() != Phase::Idle || self.is_blocked() || self.0.is_http2.load(Ordering::Relaxed)
    }

    pub(super) fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::Relaxed) {
            phase if phase == Phase::Idle as u8 => Phase::Idle,
            phase if phase == Phase::Waiting as u8 => Phase::Waiting,
            _ => Phase::Responding,
        }
    }

    fn set_phase(&self, phase: Phase) {
        self.0.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(super) fn may_probe(&self) -> bool {
        self.0.may_probe.load(Ordering::Relaxed)
    }

    /// Asks the response body to send a comment before its next event.
    pub(super) fn request_comment(&self) {
        self.0.comment.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.0.is_blocked.load(Ordering::Relaxed)
    }

    pub(super) fn set_blocked(&self, is_blocked: bool) {
        self.0.is_blocked.store(is_blocked, Ordering::Relaxed);
    }
}

/// The body of a request. Its end completes the request.
struct RequestBody {
    body: Incoming,
    exchange: Exchange,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.exchange.set_phase(Phase::Waiting);
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

impl Drop for RequestBody {
    /// A handler that drops an unread body answers without the rest of it. So the request counts
    /// as complete.
    fn drop(&mut self) {
        if self.exchange.phase() == Phase::Idle {
            self.exchange.set_phase(Phase::Waiting);
        }
    }
}

/// The body of a response. Dropping it ends the exchange.
struct ResponseBody {
    body: Body,
    is_events: bool,
    exchange: Exchange,
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_events && self.exchange.0.comment.swap(false, Ordering::Relaxed) {
            return Poll::Ready(Some(Ok(Frame::data(COMMENT))));
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

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.exchange.0.comment.store(false, Ordering::Relaxed);
        self.exchange.set_phase(Phase::Idle);
    }
}
