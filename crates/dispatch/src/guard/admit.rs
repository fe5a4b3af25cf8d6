//! The guard itself: its configuration, and the two checks every outgoing call passes.
//!
//! Without configuration it admits public addresses only, at any port, over HTTP and HTTPS. Knows nothing of what is sent.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::allow::{self, Allowed};
use super::ranges::{self, Standing};
use super::resolve::{Resolver, SystemResolver};
use super::target::{Denied, Scheme, Target};

/// What may be called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardConfig {
    /// Schemes that may be used.
    pub schemes: BTreeSet<Scheme>,
    /// Ports that may be called; none given means any, because services live at all of them and the address is what is dangerous.
    pub ports: Option<BTreeSet<u16>>,
    /// Hosts that may be called, names or addresses; none given means any.
    pub hosts: Option<BTreeSet<String>>,
    /// Private targets that may be called all the same.
    pub allow: Vec<Allowed>,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            schemes: BTreeSet::from([Scheme::Http, Scheme::Https]),
            ports: None,
            hosts: None,
            allow: Vec::new(),
        }
    }
}

/// Why a target has no address to connect to.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// One of its addresses may not be called, so none is.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The name could not be resolved just now.
    #[error("the host {host:?} could not be resolved")]
    Unresolved {
        /// Which.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The name has no addresses.
    #[error("the host {host:?} has no address")]
    NoAddress {
        /// Which.
        host: String,
    },
}

/// Decides which outgoing calls are made.
#[derive(Clone)]
pub struct Guard {
    config: Arc<GuardConfig>,
    resolver: Arc<dyn Resolver>,
}

impl Guard {
    /// A guard that asks the operating system for addresses.
    pub fn new(config: GuardConfig) -> Self {
        Self::with_resolver(config, SystemResolver)
    }

    /// A guard that asks someone else.
    pub fn with_resolver(mut config: GuardConfig, resolver: impl Resolver) -> Self {
        if let Some(hosts) = &mut config.hosts {
            *hosts = hosts.iter().map(|host| allow::spelled_as_in_urls(host)).collect();
        }
        Self { config: Arc::new(config), resolver: Arc::new(resolver) }
    }

    /// Whether the text is a URL that may be called. A host that is an address is checked as one; a name is left to [`Guard::admit`].
    pub fn check_url(&self, url: &str) -> Result<Target, Denied> {
        let target = Target::read(url)?;
        if !self.config.schemes.contains(&target.scheme()) {
            let scheme = if target.scheme() == Scheme::Http { "http" } else { "https" };
            return Err(Denied::Scheme(scheme.to_owned()));
        }
        if self.config.ports.as_ref().is_some_and(|ports| !ports.contains(&target.port())) {
            return Err(Denied::Port(target.port()));
        }
        if let Some(hosts) = &self.config.hosts {
            let host = allow::spelled_as_in_urls(target.host_text());
            if !hosts.contains(&host) {
                return Err(Denied::Host(host));
            }
        }
        if let Some(address) = target.address() {
            self.check_address(address)?;
        }
        Ok(target)
    }

    /// Whether the address may be connected to.
    pub fn check_address(&self, address: IpAddr) -> Result<(), Denied> {
        self.check(address, false)
    }

    /// The addresses to connect to: the target's own, or those its name has now. If one of them is denied, all are: a name that leads
    /// to a public and a private address is not trusted to be asked again.
    pub async fn admit(&self, target: &Target) -> Result<Vec<SocketAddr>, AdmitError> {
        let Some(name) = target.name() else {
            let addresses: Vec<IpAddr> = target.address().into_iter().collect();
            return self.admit_all(addresses, target, false);
        };
        let unresolved = |source| AdmitError::Unresolved { host: name.to_owned(), source };
        let addresses = self.resolver.resolve(name).await.map_err(unresolved)?;
        let is_listed = |allowed: &Allowed| matches!(allowed, Allowed::Host(host) if host == name);
        self.admit_all(addresses, target, self.config.allow.iter().any(is_listed))
    }

    /// Whether what is sent to the target in the clear stays where the operator knows the way: at a private address, at the host itself, or
    /// at what is on the list. Whether it may be called at all is another question.
    pub(crate) fn is_near(&self, target: &Target) -> bool {
        let listed = |address: Option<IpAddr>| {
            self.config.allow.iter().any(|allowed| match allowed {
                Allowed::Network(network) => address.is_some_and(|address| network.contains(address)),
                Allowed::Host(host) => target.name() == Some(host),
            })
        };
        match target.address().map(|address| address.to_canonical()) {
            Some(address) => {
                matches!(ranges::standing(address), Standing::Private(_)) || listed(Some(address))
            }
            None => target.name() == Some("localhost") || listed(None),
        }
    }

    fn admit_all(
        &self,
        addresses: Vec<IpAddr>,
        target: &Target,
        host_is_listed: bool,
    ) -> Result<Vec<SocketAddr>, AdmitError> {
        for address in &addresses {
            self.check(*address, host_is_listed)?;
        }
        if addresses.is_empty() {
            return Err(AdmitError::NoAddress { host: target.authority().to_owned() });
        }
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, target.port())).collect())
    }

    fn check(&self, address: IpAddr, host_is_listed: bool) -> Result<(), Denied> {
        // An IPv4 address in IPv6 clothes is connected to as the IPv4 address.
        let plain = address.to_canonical();
        let lists =
            |allowed: &Allowed| matches!(allowed, Allowed::Network(network) if network.contains(plain));
        match ranges::standing(plain) {
            Standing::Public => Ok(()),
            Standing::Private(_) if host_is_listed => Ok(()),
            Standing::Private(_) | Standing::Never(_) if self.config.allow.iter().any(lists) => Ok(()),
            Standing::Private(range) | Standing::Never(range) => Err(Denied::Address { address, range }),
        }
    }
}

impl Default for Guard {
    /// Public addresses only.
    fn default() -> Self {
        Self::new(GuardConfig::default())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
