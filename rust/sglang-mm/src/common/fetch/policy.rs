//! The policy of a fetch: which hosts and files it may reach.
//!
//! The default of the library is open. A server that fetches sources named by untrusted clients
//! should start from `closed()` and allow what it needs.

use std::{path::PathBuf, time::Duration};

use super::{
    HostList, HttpError, dial::Dialler, http::timeout_from_environment, proxies::Proxies,
    target::Target,
};

/// Which hosts and files a fetch may reach, and how long it may take.
#[derive(Clone, Debug)]
pub struct FetchPolicy {
    /// The hosts that requests and redirects may go to.
    pub reach: Reach,
    /// The local files that may be read.
    pub files: Files,
    /// The timeout for one source, redirects included. `None`: the variable `REQUEST_TIMEOUT` in
    /// seconds, read at each fetch, or 3 seconds if it is not set.
    pub timeout: Option<Duration>,
    /// `None`: the proxies of the environment, read at each fetch.
    pub(super) proxies: Option<Proxies>,
    pub(super) dialler: Dialler,
}

/// The hosts that requests may go to.
///
/// If addresses are checked, a name is resolved once and refused if *any* of its addresses is
/// not global. Only those addresses are dialled. Each redirect is checked like a new request.
///
/// A proxy of the environment is always used, even if its own address is not global. The name
/// is still resolved and checked here, and then resolved again by the proxy. If the addresses
/// change in between (DNS rebinding), the request reaches any host that the proxy can reach. So
/// the proxy should refuse its own network too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every host.
    Anywhere,
    /// Hosts with only global addresses, and the listed hosts with any addresses.
    Global {
        /// Hosts that are trusted by name, such as an internal image store.
        also: HostList,
    },
    /// Only the listed hosts, with any addresses.
    Only(HostList),
}

/// The local files that may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// All files, by absolute path or `file://` URL.
    Anywhere,
    /// No files.
    Nowhere,
    /// Regular files in this folder, after all symbolic links are resolved.
    Under(PathBuf),
}

impl FetchPolicy {
    /// Allows everything: for a program that chooses its sources itself.
    #[must_use]
    pub fn open() -> Self {
        Self {
            reach: Reach::Anywhere,
            files: Files::Anywhere,
            timeout: None,
            proxies: None,
            dialler: Dialler::default(),
        }
    }

    /// Allows http and https to global addresses, and no files: for sources named by untrusted clients.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            reach: Reach::Global {
                also: HostList::default(),
            },
            files: Files::Nowhere,
            ..Self::open()
        }
    }

    /// The policy with all environment variables read now instead of during a fetch. For a program
    /// whose other threads may change the environment later.
    #[must_use]
    pub fn with_environment(self) -> Self {
        Self {
            timeout: self.timeout.or_else(|| Some(timeout_from_environment())),
            proxies: self.proxies.or_else(|| Some(Proxies::from_environment())),
            dialler: self.dialler.with_environment(),
            ..self
        }
    }
}

impl Reach {
    /// Whether the addresses of `target` must be global. An error if the policy refuses the host.
    pub(super) fn must_be_global(&self, target: &Target) -> Result<bool, HttpError> {
        let listed = |hosts: &HostList| hosts.contains(&target.host(), Some(target.port()));
        match self {
            Self::Anywhere => Ok(false),
            Self::Global { also } => Ok(!listed(also)),
            Self::Only(hosts) if listed(hosts) => Ok(false),
            Self::Only(_) => Err(HttpError::HostRefused),
        }
    }
}
