//! The listening socket, and the TCP options of its connections.
//!
//! Invariant: the socket listens before its address is reported, so a port that is in use is an
//! error at start.

use std::{
    io,
    net::{SocketAddr, TcpListener, ToSocketAddrs as _},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tracing::warn;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 2048;

/// Receive buffer of a connection: large enough for a prompt with its images.
const RECEIVE_BUFFER: usize = 16 << 20;

/// TCP keepalive: idle time before the first probe, and time between two probes.
const KEEPALIVE_IDLE: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// How long sent bytes may stay unacknowledged before the kernel closes the connection.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_mins(5);

/// The address is invalid, or listening on it failed.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The host name has no address.
    #[error("bad listen address: host `{host}` has no address: {source}")]
    Host {
        /// The host, at most 300 characters of it.
        host: String,
        /// The error of the resolver.
        source: io::Error,
    },
    /// The port plus its offset is above 65535.
    #[error("bad listen address: port {port} + {offset} is above 65535")]
    Port {
        /// The port without the offset.
        port: u16,
        /// The offset.
        offset: u16,
    },
    /// The port is in use, or the address does not belong to this machine.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address with its port.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Listens on `port + offset` of `host`, which is an address or a name. If a name has several
/// addresses, the first one that can be bound is used.
///
/// # Errors
///
/// If the host has no address, the port is above 65535, or no address can be bound.
pub fn listen(host: &str, port: u16, offset: u16) -> Result<TcpListener, ListenError> {
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
    Err(refused
        .unwrap_or_else(|| no_host(host, io::Error::other("the name resolves to no address"))))
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
    // Accepted sockets inherit these options.
    if let Err(error) = socket.set_recv_buffer_size(RECEIVE_BUFFER) {
        warn!("cannot set the size of the receive buffer: {error}");
    }
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::{ListenError, listen};

    #[test]
    fn addresses_and_names_are_bound_once() {
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

    /// The limits close connections to clients that stop reading or whose machine is unreachable.
    #[test]
    #[cfg(target_os = "linux")]
    fn accepted_connections_have_limits() {
        use super::{KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, USER_TIMEOUT};
        use socket2::SockRef;

        let listener = listen("127.0.0.1", 0, 0).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let accepted = SockRef::from(&accepted);
        assert!(accepted.keepalive().unwrap());
        assert_eq!(KEEPALIVE_IDLE, accepted.tcp_keepalive_time().unwrap());
        assert_eq!(
            KEEPALIVE_INTERVAL,
            accepted.tcp_keepalive_interval().unwrap()
        );
        assert_eq!(Some(USER_TIMEOUT), accepted.tcp_user_timeout().unwrap());
        assert!(accepted.tcp_nodelay().unwrap());
    }

    #[test]
    fn invalid_addresses_are_refused() {
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
