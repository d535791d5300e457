//! Connections: resolves names, makes HTTP clients that dial only given addresses, and decides
//! which certificates are trusted.
//!
//! Names are resolved by the system, which cannot be interrupted. The time counts against the
//! deadline, which is checked again afterwards.
//!
//! The trusted roots are Mozilla's, compiled in, so that every container trusts the same ones. As in
//! Python's `requests`, the variable `REQUESTS_CA_BUNDLE` or `CURL_CA_BUNDLE` names a PEM file that
//! replaces them. The file is read once.
//!
//! No connection outlives its request. Forked children would share a pooled socket, and the server
//! may close one just when it is reused.
//!
//! Invariant: no thread is started, and a client dials only the addresses that it was given.

use std::{
    env, fs, io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, OnceLock},
    time::Duration,
};

use ureq::{
    Agent, Body,
    config::Config,
    http::{Request, Response, Uri},
    tls::{PemItem, RootCerts, TlsConfig, parse_pem},
    unversioned::{
        resolver::{ResolvedSocketAddrs, Resolver},
        transport::{
            ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector,
            TcpConnector, Transport,
        },
    },
};
use url::Host;

use super::{HttpError, forward::Forward};

/// Resolves names and makes clients.
#[derive(Clone, Debug)]
pub(super) struct Dialler {
    /// The resolver: that of the system, or one of a test.
    pub(super) lookup: fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
    /// `None`: the roots from the environment, read once.
    pub(super) trust: Option<Arc<Trust>>,
}

impl Default for Dialler {
    fn default() -> Self {
        Self {
            lookup: |name, port| Ok((name, port).to_socket_addrs()?.collect()),
            trust: None,
        }
    }
}

impl Dialler {
    /// The dialler with the trusted roots read from the environment now. An error in the variables is
    /// reported by the first request that needs them.
    pub(super) fn with_environment(self) -> Self {
        settings();
        Self {
            trust: self.trust.or_else(|| Trust::from_environment().ok()),
            ..self
        }
    }

    /// All addresses of a host, at least one.
    pub(super) fn resolve(
        &self,
        host: &Host<&str>,
        port: u16,
    ) -> Result<Vec<SocketAddr>, HttpError> {
        let found = match host {
            Host::Ipv4(address) => vec![SocketAddr::from((*address, port))],
            Host::Ipv6(address) => vec![SocketAddr::from((*address, port))],
            Host::Domain(name) => (self.lookup)(name, port).map_err(HttpError::Unresolved)?,
        };
        if found.is_empty() {
            return Err(HttpError::Unresolved(
                io::ErrorKind::AddrNotAvailable.into(),
            ));
        }
        Ok(found)
    }

    /// A client for one request, which uses `route` and dials `addresses` for any host.
    pub(super) fn client(
        &self,
        addresses: Vec<SocketAddr>,
        route: Route,
        time: Duration,
    ) -> Result<Client, HttpError> {
        let trust = match &self.trust {
            Some(trust) => trust.clone(),
            None => Trust::from_environment()?,
        };
        let (origin, tunnel) = match route {
            Route::Direct => (None, None),
            Route::Forwarded(origin) => (Some(origin), None),
            Route::Tunnelled(proxy) => (None, Some(proxy)),
        };
        let connector =
            ().chain(ConnectProxyConnector::default())
                .chain(TcpConnector::default())
                .chain(Forward(origin))
                .chain(Tls(trust.clone()));
        Ok(Client {
            agent: Agent::with_parts(settings().clone(), connector, Resolved(addresses)),
            tunnel,
            time,
            trust,
        })
    }
}

/// The settings shared by all clients.
///
/// Created once, because ureq reads the proxy variables of the environment whenever a configuration
/// is created.
fn settings() -> &'static Config {
    static SETTINGS: OnceLock<Config> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(0)
            .user_agent(concat!(
                env!("CARGO_PKG_NAME"),
                "/",
                env!("CARGO_PKG_VERSION")
            ))
            .accept_encoding("gzip")
            .build()
    })
}

/// A client for one request.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    tunnel: Option<ureq::Proxy>,
    time: Duration,
    trust: Arc<Trust>,
}

impl Client {
    /// Sends `request` and reads the head of its response.
    pub(super) fn run(&self, request: Request<()>) -> Result<Response<Body>, ureq::Error> {
        let request = self
            .agent
            .configure_request(request)
            .proxy(self.tunnel.clone())
            .timeout_global(Some(self.time))
            .tls_config(self.trust.config.clone())
            .build();
        self.agent.run(request)
    }
}

/// How a request reaches its host.
pub(super) enum Route {
    Direct,
    /// Through a proxy that gets the request with its origin and forwards it.
    Forwarded(String),
    /// Through a proxy that tunnels the connection.
    Tunnelled(ureq::Proxy),
}

/// The capacity of ureq's address list. Further addresses are dropped: they would be tried only
/// after all of these failed.
const MAX_ADDRESSES: usize = 16;

/// A resolver that returns addresses resolved (and, if required, checked) before.
#[derive(Debug)]
struct Resolved(Vec<SocketAddr>);

impl Resolver for Resolved {
    fn resolve(
        &self,
        _: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut addresses = self.empty();
        for address in self.0.iter().take(MAX_ADDRESSES) {
            addresses.push(*address);
        }
        Ok(addresses)
    }
}

/// The trusted certificates, and the TLS sessions kept between connections.
#[derive(Debug)]
pub(super) struct Trust {
    config: TlsConfig,
    connector: RustlsConnector,
}

impl Trust {
    pub(super) fn new(roots: RootCerts) -> Arc<Self> {
        Arc::new(Self {
            config: TlsConfig::builder().root_certs(roots).build(),
            connector: RustlsConnector::default(),
        })
    }

    /// The roots from the environment, read once.
    fn from_environment() -> Result<Arc<Self>, HttpError> {
        static FOUND: OnceLock<Result<Arc<Trust>, String>> = OnceLock::new();
        FOUND
            .get_or_init(|| {
                let named = |variable| env::var(variable).ok().filter(|path| !path.is_empty());
                match named("REQUESTS_CA_BUNDLE").or_else(|| named("CURL_CA_BUNDLE")) {
                    None => Ok(Self::new(RootCerts::WebPki)),
                    Some(path) => {
                        Self::from_file(&path).map_err(|error| format!("{path}: {error}"))
                    }
                }
            })
            .clone()
            .map_err(HttpError::Trust)
    }

    fn from_file(path: &str) -> Result<Arc<Self>, String> {
        let pem = fs::read(path).map_err(|error| error.to_string())?;
        let certificates: Vec<_> = parse_pem(&pem)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
                Ok(_) => None,
                Err(error) => Some(Err(error.to_string())),
            })
            .collect::<Result<_, _>>()?;
        if certificates.is_empty() {
            return Err("no certificate in it".to_owned());
        }
        Ok(Self::new(RootCerts::Specific(Arc::new(certificates))))
    }
}

/// The TLS connector. It is shared by all clients, so that sessions can be resumed.
#[derive(Debug)]
struct Tls(Arc<Trust>);

impl<In: Transport> Connector<In> for Tls {
    type Out = <RustlsConnector as Connector<In>>::Out;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        self.0.connector.connect(details, chained)
    }
}
