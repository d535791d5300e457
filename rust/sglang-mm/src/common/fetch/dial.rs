//! Connections: names to addresses, addresses to an HTTP client that dials nothing else,
//! and whose certificates count.
//!
//! Names are resolved by the system, which cannot be interrupted: the time it takes counts
//! against the deadline, which is looked at again afterwards.
//!
//! Trusted are Mozilla's roots as compiled in, so that each container trusts the same; like
//! `requests`, `REQUESTS_CA_BUNDLE` or `CURL_CA_BUNDLE` name a PEM file that takes their
//! place. It is read once.
//!
//! No connection outlives its request. A pooled socket would be shared with forked
//! children, and may be closed by the server at the moment it is used again.
//!
//! Invariant: no thread is started; a client dials only the addresses that were handed to it.

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
    /// The system's resolver; tests have their own.
    pub(super) lookup: fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
    /// `None`: what the environment says, once.
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
    /// The same, having asked the environment whom to trust. What is wrong there is told by
    /// the request that needs it.
    pub(super) fn with_environment(self) -> Self {
        settings();
        Self {
            trust: self.trust.or_else(|| Trust::of_environment().ok()),
            ..self
        }
    }

    /// All addresses of a host; there is at least one.
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

    /// A client for one exchange, that goes by `way` and dials `addresses` for whatever it is asked.
    pub(super) fn client(
        &self,
        addresses: Vec<SocketAddr>,
        way: Way,
        time: Duration,
    ) -> Result<Client, HttpError> {
        let trust = match &self.trust {
            Some(trust) => trust.clone(),
            None => Trust::of_environment()?,
        };
        let (origin, tunnel) = match way {
            Way::Direct => (None, None),
            Way::Forwarded(origin) => (Some(origin), None),
            Way::Tunnelled(proxy) => (None, Some(proxy)),
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

/// What all clients have in common.
///
/// Made once: whatever settings they begin with, ureq asks the environment for proxies.
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

/// A client for one exchange.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    tunnel: Option<ureq::Proxy>,
    time: Duration,
    trust: Arc<Trust>,
}

impl Client {
    /// Sends `request` and reads the head of its answer.
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

/// How a request gets to its host.
pub(super) enum Way {
    Direct,
    /// By a proxy that is told the origin of the request, and asks itself.
    Forwarded(String),
    /// Through a proxy that only passes bytes on.
    Tunnelled(ureq::Proxy),
}

/// What ureq's list of addresses holds. More would only be tried after all these had failed.
const MOST_ADDRESSES: usize = 16;

/// Addresses that were found, and checked if need be.
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
        for address in self.0.iter().take(MOST_ADDRESSES) {
            addresses.push(*address);
        }
        Ok(addresses)
    }
}

/// Which certificates count, and what TLS remembers between connections.
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

    /// What the environment says, looked at once.
    fn of_environment() -> Result<Arc<Self>, HttpError> {
        static FOUND: OnceLock<Result<Arc<Trust>, String>> = OnceLock::new();
        FOUND
            .get_or_init(|| {
                let named = |variable| env::var(variable).ok().filter(|path| !path.is_empty());
                match named("REQUESTS_CA_BUNDLE").or_else(|| named("CURL_CA_BUNDLE")) {
                    None => Ok(Self::new(RootCerts::WebPki)),
                    Some(path) => Self::of_file(&path).map_err(|why| format!("{path}: {why}")),
                }
            })
            .clone()
            .map_err(HttpError::Trust)
    }

    fn of_file(path: &str) -> Result<Arc<Self>, String> {
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

/// The shared TLS connector: clients come and go, sessions are resumed.
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
