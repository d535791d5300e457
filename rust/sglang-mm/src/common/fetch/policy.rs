//! What a fetch may reach.
//!
//! The library is open: it does what the program that calls it says. A server that fetches
//! what strangers name starts from `closed()` and opens what it must.

use std::{path::PathBuf, time::Duration};

use super::{
    HostList, HttpError, dial::Dialler, http::timeout_of_environment, proxies::Proxies,
    target::Target,
};

/// What a fetch may reach, and for how long.
#[derive(Clone, Debug)]
pub struct FetchPolicy {
    /// Which hosts requests may go to, redirects included.
    pub reach: Reach,
    /// Which local files may be read.
    pub files: Files,
    /// The time for one source, redirects included. `None`: as many seconds as the variable
    /// `REQUEST_TIMEOUT` says at the time, 3 without it.
    pub timeout: Option<Duration>,
    /// `None`: the environment's at the time.
    pub(super) proxies: Option<Proxies>,
    pub(super) dialler: Dialler,
}

/// Which hosts requests may go to.
///
/// Where addresses count, a name is resolved once, is refused if *any* of its addresses is
/// not global, and exactly those addresses are dialled. Each redirect is a request of its
/// own. A proxy of the environment is used in every case and need not be global itself.
/// The name must resolve here all the same, and the proxy resolves it anew: a name that
/// changes its addresses in between reaches what the proxy reaches, so let the proxy refuse
/// its own network too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every host.
    Anywhere,
    /// Hosts with global addresses only, and the listed ones whatever their addresses.
    Global {
        /// Hosts that are trusted by name, such as an image store of one's own.
        and: HostList,
    },
    /// The listed hosts, whatever their addresses, and no others.
    Only(HostList),
}

/// Which local files may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// Every file, by absolute path or `file://` URL.
    Anywhere,
    /// None.
    Nowhere,
    /// Regular files that lie in this folder once all links are followed.
    Under(PathBuf),
}

impl FetchPolicy {
    /// Everything: for a program that names its sources itself.
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

    /// Global addresses over http and https, and no files: for sources that strangers name.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            reach: Reach::Global {
                and: HostList::default(),
            },
            files: Files::Nowhere,
            ..Self::open()
        }
    }

    /// The same with all that it would ask the environment for while it fetches, asked now:
    /// for a host whose other threads change the environment, but not at this moment.
    #[must_use]
    pub fn with_environment(self) -> Self {
        Self {
            timeout: self.timeout.or_else(|| Some(timeout_of_environment())),
            proxies: self.proxies.or_else(|| Some(Proxies::from_environment())),
            dialler: self.dialler.with_environment(),
            ..self
        }
    }
}

impl Reach {
    /// Whether the addresses of `target` must be global, if it may be reached at all.
    pub(super) fn must_be_global(&self, target: &Target) -> Result<bool, HttpError> {
        let holds = |hosts: &HostList| hosts.holds(&target.host(), Some(target.port()));
        match self {
            Self::Anywhere => Ok(false),
            Self::Global { and } => Ok(!holds(and)),
            Self::Only(hosts) if holds(hosts) => Ok(false),
            Self::Only(_) => Err(HttpError::HostRefused),
        }
    }
}
