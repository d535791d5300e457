//! Connections: accepted until the server is told to stop, then ended after the answers
//! that are on their way.
//!
//! Invariant: a failing connection ends itself and no other, and one that says nothing
//! does not stay.

use std::{
    io,
    net::{Shutdown, SocketAddr},
    sync::Arc,
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
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use super::{
    connection::{Connection, Exchange},
    router,
};
use crate::frontend::Frontend;

/// What HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long to wait when the system has no more descriptors, or a beginning is not whole.
const BREATH: Duration = Duration::from_millis(100);

/// How long connections may take to send the errors that end them, or to hear one.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(500);

/// Serves `listener` until `stop` changes, then until all connections have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    frontend: Arc<Frontend>,
    mut stop: watch::Receiver<bool>,
) {
    let (patience, access_log) = (frontend.config.read_timeout, frontend.config.access_log);
    let mut routes = router(frontend);
    if access_log {
        routes = routes.layer(middleware::from_fn(log_access));
    }
    let connections = GracefulShutdown::new();
    let http = builder(patience);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let stop = stop.clone();
                connect(&http, &connections, stream, peer, &routes, patience, stop);
            }
            Err(error) => after(&error).await,
        }
    }
    // Not only closed: a forked child may have it too, and clients would go on connecting
    // to nobody.
    if let Err(error) = SockRef::from(&listener).shutdown(Shutdown::Both) {
        debug!("the listening socket: {error}");
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
    patience: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let routes = TowerToHyperService::new(routes.clone());
    let (http, watcher) = (http.clone(), connections.watcher());
    tokio::spawn(async move {
        let speaks = tokio::select! {
            speaks = speaks(&stream, patience) => speaks,
            _ = stop.wait_for(|stop| *stop) => false,
        };
        if !speaks {
            return;
        }
        let exchange = Exchange::default();
        let left_over = is_left_over(stop, exchange.clone());
        let bytes = TokioIo::new(Connection::new(stream, exchange.clone()));
        let service =
            service_fn(move |request| exchange.clone().answer(routes.clone(), request, peer));
        let connection = http.serve_connection(bytes, service);
        let connection = watcher.watch(connection.into_owned());
        tokio::select! {
            ended = connection => if let Err(error) = ended {
                debug!(%peer, "connection: {error}");
            },
            () = left_over => debug!(%peer, "connection: it asked for nothing"),
        }
    });
}

/// Waits until the server stops and the client, who has had the time to, has asked for
/// nothing.
async fn is_left_over(mut stop: watch::Receiver<bool>, exchange: Exchange) {
    // An error: whoever would say so is gone.
    let _ = stop.wait_for(|stop| *stop).await;
    sleep(LAST_WORDS).await;
    while exchange.is_busy() {
        sleep(BREATH).await;
    }
}

/// Whether a client says within its time which HTTP it speaks. Up to there nobody else
/// looks at the time.
async fn speaks(stream: &TcpStream, patience: Duration) -> bool {
    let said = async {
        let mut beginning = [0; PREFACE.len()];
        loop {
            match stream.peek(&mut beginning).await {
                Ok(0) | Err(_) => return false,
                Ok(length)
                    if length < PREFACE.len() && PREFACE.starts_with(&beginning[..length]) =>
                {
                    sleep(BREATH).await;
                }
                Ok(_) => return true,
            }
        }
    };
    timeout(patience, said).await.unwrap_or(false)
}

/// A connection that was given up before it was accepted costs nothing; one for which
/// there is no descriptor has to wait for others to end.
async fn after(error: &io::Error) {
    let gone = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    );
    if !gone {
        warn!("cannot accept: {error}");
        sleep(BREATH).await;
    }
}

/// A line a request, as uvicorn writes it.
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
