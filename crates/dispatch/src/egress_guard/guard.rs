//! The egress guard: its configuration, and the two checks that every outgoing call passes.
//!
//! Without configuration it admits only public addresses, on any port, over HTTP and HTTPS. Knows nothing about what is
//! sent.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::address_ranges::{self, AddressClass};
use super::allowlist::{self, AllowEntry};
use super::resolve::{Resolver, SystemResolver};
use super::target::{DenyReason, Scheme, Target};

/// The targets that may be called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EgressGuardConfig {
    /// The schemes that may be used.
    pub schemes: BTreeSet<Scheme>,
    /// The ports that may be called; none means any, because services use all of them and the danger lies in the
    /// address.
    pub ports: Option<BTreeSet<u16>>,
    /// The hosts that may be called, names or addresses; none means any.
    pub hosts: Option<BTreeSet<String>>,
    /// The private targets that may be called all the same.
    pub allow: Vec<AllowEntry>,
}

impl Default for EgressGuardConfig {
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
    /// One of the target's addresses may not be called, so none is.
    #[error(transparent)]
    Denied(#[from] DenyReason),
    /// The name could not be resolved at the moment.
    #[error("the host {host:?} could not be resolved")]
    Unresolved { host: String, source: io::Error },
    /// The name has no addresses.
    #[error("the host {host:?} has no address")]
    NoAddress { host: String },
}

/// Decides which targets may be called.
#[derive(Clone)]
pub struct EgressGuard {
    config: Arc<EgressGuardConfig>,
    resolver: Arc<dyn Resolver>,
}

impl EgressGuard {
    /// A guard that resolves names through the operating system.
    pub fn new(config: EgressGuardConfig) -> Self {
        Self::with_resolver(config, SystemResolver)
    }

    /// A guard with a resolver of its own.
    pub fn with_resolver(mut config: EgressGuardConfig, resolver: impl Resolver) -> Self {
        if let Some(hosts) = &mut config.hosts {
            *hosts = hosts.iter().map(|host| allowlist::normalize_host(host)).collect();
        }
        Self { config: Arc::new(config), resolver: Arc::new(resolver) }
    }

    /// Checks that the text is a URL that may be called. A host that is an address is checked here; a name is left to
    /// [`EgressGuard::admit`].
    pub fn check_url(&self, url: &str) -> Result<Target, DenyReason> {
        let target = Target::parse(url)?;
        if !self.config.schemes.contains(&target.scheme()) {
            let scheme = if target.scheme() == Scheme::Http { "http" } else { "https" };
            return Err(DenyReason::Scheme(scheme.to_owned()));
        }
        if self.config.ports.as_ref().is_some_and(|ports| !ports.contains(&target.port())) {
            return Err(DenyReason::Port(target.port()));
        }
        if let Some(hosts) = &self.config.hosts {
            let host = allowlist::normalize_host(target.host_text());
            if !hosts.contains(&host) {
                return Err(DenyReason::Host(host));
            }
        }
        if let Some(address) = target.address() {
            self.check_address(address)?;
        }
        Ok(target)
    }

    /// Checks that the address may be connected to.
    pub fn check_address(&self, address: IpAddr) -> Result<(), DenyReason> {
        self.check_with_allowlist(address, false)
    }

    /// The addresses to connect to: the target's own, or those that its name resolves to now. If one of them is denied,
    /// all are: a name that resolves to public and private addresses is not trusted.
    pub async fn admit(&self, target: &Target) -> Result<Vec<SocketAddr>, AdmitError> {
        let Some(name) = target.name() else {
            let addresses: Vec<IpAddr> = target.address().into_iter().collect();
            return self.check_all(addresses, target, false);
        };
        let unresolved = |source| AdmitError::Unresolved { host: name.to_owned(), source };
        let addresses = self.resolver.resolve(name).await.map_err(unresolved)?;
        let is_listed = |allowed: &AllowEntry| matches!(allowed, AllowEntry::Host(host) if host == name);
        self.check_all(addresses, target, self.config.allow.iter().any(is_listed))
    }

    /// True if unencrypted traffic to the target stays in a network that the operator trusts: a private address, the
    /// local host, or an entry of the allowlist. Does not say whether the target may be called.
    pub(crate) fn is_trusted_network(&self, target: &Target) -> bool {
        let listed = |address: Option<IpAddr>| {
            self.config.allow.iter().any(|allowed| match allowed {
                AllowEntry::Network(network) => address.is_some_and(|address| network.contains(address)),
                AllowEntry::Host(host) => target.name() == Some(host),
            })
        };
        match target.address().map(|address| address.to_canonical()) {
            Some(address) => {
                matches!(address_ranges::classify(address), AddressClass::Private(_)) || listed(Some(address))
            }
            None => target.name() == Some("localhost") || listed(None),
        }
    }

    fn check_all(
        &self,
        addresses: Vec<IpAddr>,
        target: &Target,
        host_is_listed: bool,
    ) -> Result<Vec<SocketAddr>, AdmitError> {
        for address in &addresses {
            self.check_with_allowlist(*address, host_is_listed)?;
        }
        if addresses.is_empty() {
            return Err(AdmitError::NoAddress { host: target.authority().to_owned() });
        }
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, target.port())).collect())
    }

    fn check_with_allowlist(&self, address: IpAddr, host_is_listed: bool) -> Result<(), DenyReason> {
        // Connecting to an IPv4-mapped IPv6 address connects to the IPv4 address.
        let plain = address.to_canonical();
        let lists =
            |allowed: &AllowEntry| matches!(allowed, AllowEntry::Network(network) if network.contains(plain));
        match address_ranges::classify(plain) {
            AddressClass::Public => Ok(()),
            AddressClass::Private(_) if host_is_listed => Ok(()),
            AddressClass::Private(_) | AddressClass::Reserved(_) if self.config.allow.iter().any(lists) => {
                Ok(())
            }
            AddressClass::Private(range) | AddressClass::Reserved(range) => {
                Err(DenyReason::Address { address, range })
            }
        }
    }
}

impl Default for EgressGuard {
    /// Admits only public addresses.
    fn default() -> Self {
        Self::new(EgressGuardConfig::default())
    }
}

impl fmt::Debug for EgressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressGuard").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
