//! The listening socket, and the life of the connections on it.
//!
//! Invariant: the socket listens before anybody is told its address, so a port that is
//! taken is an error at start.

use std::{
    io,
    net::{SocketAddr, TcpListener, ToSocketAddrs as _},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tracing::warn;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 2048;

/// Bytes that the system may hold for a connection: a prompt with its pictures in one go.
const RECEIVE_BUFFER: usize = 16 << 20;

/// How long a connection is quiet before its client's system is asked whether it is there,
/// and how long between two such questions.
const QUIET: Duration = Duration::from_mins(1);
const ASK_AGAIN: Duration = Duration::from_secs(15);

/// How long an answer may wait for a client that takes nothing of it.
#[cfg(target_os = "linux")]
const UNTAKEN: Duration = Duration::from_mins(5);

/// The address is none, or cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// No such host.
    #[error("bad listen address: host `{host}` has no address: {source}")]
    Host { host: String, source: io::Error },
    /// A port beyond the last.
    #[error("bad listen address: port {port} + {offset} is above 65535")]
    Port { port: u16, offset: u16 },
    /// Somebody has it, or it is not ours.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        address: SocketAddr,
        source: io::Error,
    },
}

/// A socket that listens on `host`, an address or a name, and `port + offset`: on the first
/// of the name's addresses that can be had.
pub(crate) fn listen(host: &str, port: u16, offset: u16) -> Result<TcpListener, ListenError> {
    let Some(port) = port.checked_add(offset) else {
        return Err(ListenError::Port { port, offset });
    };
    let mut refused = None;
    for address in resolve(host, port)? {
        match bound(address) {
            Ok(listener) => return Ok(listener),
            Err(source) => refused = refused.or(Some(ListenError::Bind { address, source })),
        }
    }
    Err(refused.unwrap_or_else(|| no_host(host, io::Error::other("no address"))))
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ListenError> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let found = (bare.unwrap_or(host), port).to_socket_addrs();
    match found {
        Ok(addresses) => Ok(addresses.collect()),
        Err(source) => Err(no_host(host, source)),
    }
}

fn no_host(host: &str, source: io::Error) -> ListenError {
    let host = host.chars().take(300).collect();
    ListenError::Host { host, source }
}

fn bound(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit all of this.
    if let Err(error) = socket.set_recv_buffer_size(RECEIVE_BUFFER) {
        warn!("the receive buffer keeps its size: {error}");
    }
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(QUIET)
        .with_interval(ASK_AGAIN);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNTAKEN))?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::{ListenError, listen};

    #[test]
    fn addresses() {
        for host in ["127.0.0.1", "localhost", "::1", "[::1]"] {
            let Ok(listener) = listen(host, 0, 0) else {
                assert!(host.contains(':'), "{host}: only IPv6 may be absent");
                continue;
            };
            let address = listener.local_addr().unwrap();
            assert_ne!(0, address.port(), "{host}");
            let taken = listen(host, address.port(), 0).map(|_| ()).unwrap_err();
            assert!(matches!(taken, ListenError::Bind { .. }), "{host}: {taken}");
        }
    }

    /// Neither a client whose machine is gone nor one that takes nothing stays for ever.
    #[test]
    #[cfg(target_os = "linux")]
    fn accepted_connections_have_limits() {
        use super::{ASK_AGAIN, QUIET, UNTAKEN};
        use socket2::SockRef;

        let listener = listen("127.0.0.1", 0, 0).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let accepted = SockRef::from(&accepted);
        assert!(accepted.keepalive().unwrap());
        assert_eq!(QUIET, accepted.tcp_keepalive_time().unwrap());
        assert_eq!(ASK_AGAIN, accepted.tcp_keepalive_interval().unwrap());
        assert_eq!(Some(UNTAKEN), accepted.tcp_user_timeout().unwrap());
        assert!(accepted.tcp_nodelay().unwrap());
    }

    #[test]
    fn what_is_no_address() {
        let message = |host, port, offset| {
            listen(host, port, offset)
                .map(|_| ())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            "bad listen address: port 65535 + 1 is above 65535",
            message("127.0.0.1", 65535, 1)
        );
        assert!(
            message("no such host", 0, 0)
                .starts_with("bad listen address: host `no such host` has no address")
        );
        assert!(message("", 0, 0).starts_with("bad listen address"));
    }
}
