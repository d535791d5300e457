//! Accepts connections until the server stops, then closes each one after its current response.
//!
//! Invariant: an error on a connection ends only that connection, and a connection that sends no
//! request is closed after a timeout.
//!
//! hyper refuses a malformed or oversized request head by itself, with a response without a body.

use std::{
    io,
    net::{Shutdown, SocketAddr},
    time::Duration,
};

use axum::{
    Router,
    extract::{ConnectInfo, Request},
    middleware::{self, Next},
    response::Response,
};
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::connection::{Connection, Exchange};

/// The first bytes of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Pause before a retry: of `accept` after it failed for lack of file descriptors, and of reading
/// an incomplete preface.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Time at shutdown for connections to send their last error, and for clients that have just
/// connected to send a request, which is then refused.
pub const CLOSE_GRACE: Duration = Duration::from_millis(500);

/// Settings of all connections.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a client may take to begin a request and to send its head.
    pub read_timeout: Duration,
    /// Whether each request is logged.
    pub access_log: bool,
}

/// Serves `listener` until `stop` is cancelled, then waits until all connections are closed.
pub async fn serve(
    listener: TcpListener,
    mut routes: Router,
    settings: Settings,
    stop: CancellationToken,
) {
    let read_timeout = settings.read_timeout;
    if settings.access_log {
        routes = routes.layer(middleware::from_fn(log_access));
    }
    let connections = GracefulShutdown::new();
    let http = builder(read_timeout);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let stop = stop.clone();
                connect(
                    &http,
                    &connections,
                    stream,
                    peer,
                    &routes,
                    read_timeout,
                    stop,
                );
            }
            Err(error) => pause_after(&error).await,
        }
    }
    // Closing is not enough: if a forked child has inherited the socket, clients can still
    // connect, but no process accepts the connections.
    if let Err(error) = SockRef::from(&listener).shutdown(Shutdown::Both) {
        debug!("shutting the listening socket down: {error}");
    }
    drop(listener);
    connections.shutdown().await;
}

fn builder(timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(timeout);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(timeout)
        .keep_alive_timeout(timeout);
    http
}

fn connect(
    http: &auto::Builder<TokioExecutor>,
    connections: &GracefulShutdown,
    stream: TcpStream,
    peer: SocketAddr,
    routes: &Router,
    read_timeout: Duration,
    stop: CancellationToken,
) {
    let routes = TowerToHyperService::new(routes.clone());
    let (http, watcher) = (http.clone(), connections.watcher());
    tokio::spawn(async move {
        let has_begun = tokio::select! {
            has_begun = has_begun(&stream, read_timeout) => has_begun,
            () = stop.cancelled() => false,
        };
        if !has_begun {
            return;
        }
        let exchange = Exchange::default();
        let idle_at_shutdown = idle_at_shutdown(stop, exchange.clone());
        let bytes = TokioIo::new(Connection::new(stream, exchange.clone()));
        let service =
            service_fn(move |request| exchange.clone().answer(routes.clone(), request, peer));
        let connection = http.serve_connection(bytes, service);
        let connection = watcher.watch(connection.into_owned());
        tokio::select! {
            ended = connection => if let Err(error) = ended {
                debug!(%peer, "connection: {error}");
            },
            () = idle_at_shutdown => debug!(%peer, "connection: closed idle at shutdown"),
        }
    });
}

/// Completes when the server has stopped and no request is in progress after the grace period.
async fn idle_at_shutdown(stop: CancellationToken, exchange: Exchange) {
    stop.cancelled().await;
    sleep(CLOSE_GRACE).await;
    while exchange.is_busy() {
        sleep(RETRY_DELAY).await;
    }
}

/// Waits until the first bytes show whether the client speaks HTTP/1 or HTTP/2. Returns false if
/// the client closes or `limit` has passed. hyper-util starts its own timers only after that.
async fn has_begun(stream: &TcpStream, limit: Duration) -> bool {
    let begun = async {
        let mut beginning = [0; PREFACE.len()];
        loop {
            match stream.peek(&mut beginning).await {
                Ok(0) | Err(_) => return false,
                Ok(length)
                    if length < PREFACE.len() && PREFACE.starts_with(&beginning[..length]) =>
                {
                    sleep(RETRY_DELAY).await;
                }
                Ok(_) => return true,
            }
        }
    };
    timeout(limit, begun).await.unwrap_or(false)
}

/// Pauses if `accept` failed for lack of resources, such as file descriptors. Other connections
/// may end during the pause. If the client disconnected before it was accepted, there is no pause.
async fn pause_after(error: &io::Error) {
    let disconnected = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    );
    if !disconnected {
        warn!("cannot accept a connection: {error}");
        sleep(RETRY_DELAY).await;
    }
}

/// Logs one line per request, in the format of uvicorn.
async fn log_access(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let line = format!(
        "{} {} {:?}",
        request.method(),
        request.uri(),
        request.version()
    );
    let response = next.run(request).await;
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or("");
    info!("{peer} - \"{line}\" {} {reason}", status.as_u16());
    response
}
