//! The state that all remote activities share: the egress guard, the secrets, and the connection pools, limiters and
//! circuit breakers of their targets.
//!
//! Activities at one target share a connection pool if they use the same certificates and HTTP versions, and they
//! always share the limiter and the breaker. Knows nothing about the names of activities.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_rustls::TlsConnector;

use super::circuit_breaker::{BreakerConfig, CircuitBreaker};
use super::connection_pool::{ConnectionPool, HttpVersions};
use super::declaration::{DeclarationError, RemoteDeclaration, TlsDeclaration};
use super::limiter::{Limiter, TargetLimits};
use super::secrets::Secrets;
use super::tls_profile::TlsProfile;
use crate::egress_guard::{EgressGuard, Scheme, Target};
use crate::http::{AlpnOffer, Connector, TlsError, TlsRoots};

/// The configuration that applies to every target separately.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TargetConfig {
    /// The circuit breaker of the target.
    pub breaker: BreakerConfig,
    /// The limits that all its activities share.
    pub limits: TargetLimits,
}

impl From<BreakerConfig> for TargetConfig {
    /// A configuration without limits.
    fn from(breaker: BreakerConfig) -> Self {
        Self { breaker, limits: TargetLimits::default() }
    }
}

/// The shared state of outgoing calls. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Outbound(Arc<OutboundInner>);

struct OutboundInner {
    connector: Connector,
    secrets: Arc<dyn Secrets>,
    targets: TargetConfig,
    tls_any_version: TlsConnector,
    tls_http2: TlsConnector,
    pools: WeakCache<(String, HttpVersions, TlsDeclaration), ConnectionPool>,
    breakers: WeakCache<String, CircuitBreaker>,
    limiters: WeakCache<String, Limiter>,
}

impl Outbound {
    /// Outgoing calls to the targets that the guard admits, with these secrets.
    pub fn new(
        guard: EgressGuard,
        secrets: impl Secrets,
        targets: impl Into<TargetConfig>,
    ) -> Result<Self, TlsError> {
        Self::with_connector(Connector::new(guard), Arc::new(secrets), targets)
    }

    pub(super) fn with_connector(
        connector: Connector,
        secrets: Arc<dyn Secrets>,
        targets: impl Into<TargetConfig>,
    ) -> Result<Self, TlsError> {
        let tls = |offer| TlsRoots::web_pki().connector(offer, None);
        let either = tls(AlpnOffer::Either)?;
        let http2 = tls(AlpnOffer::Http2)?;
        Ok(Self(Arc::new(OutboundInner {
            connector,
            secrets,
            targets: targets.into(),
            tls_any_version: either,
            tls_http2: http2,
            pools: WeakCache::default(),
            breakers: WeakCache::default(),
            limiters: WeakCache::default(),
        })))
    }

    /// Rejects a declaration whose bearer token would be sent without TLS outside a trusted network, where others could
    /// read it. A key that requests are signed with is never sent.
    pub(super) fn check_auth(&self, declaration: &RemoteDeclaration) -> Result<(), DeclarationError> {
        let target = Target::parse(&declaration.endpoint)?;
        if declaration.auth.bearer.is_none()
            || target.scheme() == Scheme::Https
            || self.guard().is_trusted_network(&target)
        {
            return Ok(());
        }
        let expected =
            "absent where the endpoint is http, unless its host is a private address or in dispatch.allow";
        Err(DeclarationError::Invalid { field: "auth.bearer".to_owned(), expected })
    }

    pub(super) fn guard(&self) -> &EgressGuard {
        self.0.connector.guard()
    }

    pub(crate) fn secrets(&self) -> &dyn Secrets {
        &*self.0.secrets
    }

    /// The connection pool of a target.
    pub(super) fn pool(
        &self,
        target: &Target,
        http_versions: HttpVersions,
        tls: &TlsDeclaration,
    ) -> Arc<ConnectionPool> {
        let shared = &self.0;
        shared.pools.get_or_create((target.to_string(), http_versions, tls.clone()), || {
            let is_default = *tls == TlsDeclaration::default();
            let profile = match http_versions {
                HttpVersions::Either if is_default => TlsProfile::WebPki(shared.tls_any_version.clone()),
                HttpVersions::Http2 if is_default => TlsProfile::WebPki(shared.tls_http2.clone()),
                HttpVersions::Either => {
                    TlsProfile::declared(tls.clone(), AlpnOffer::Either, shared.secrets.clone())
                }
                HttpVersions::Http2 => {
                    TlsProfile::declared(tls.clone(), AlpnOffer::Http2, shared.secrets.clone())
                }
            };
            ConnectionPool::new(target.clone(), shared.connector.clone(), profile, http_versions)
        })
    }

    /// The circuit breaker of a target, shared by all its activities.
    pub(super) fn breaker(&self, target: &Target) -> Arc<CircuitBreaker> {
        self.0.breakers.get_or_create(target.to_string(), || CircuitBreaker::new(self.0.targets.breaker))
    }

    /// The limiter of a target, shared by all its activities.
    pub(super) fn limiter(&self, target: &Target) -> Arc<Limiter> {
        self.0.limiters.get_or_create(target.to_string(), || Limiter::for_target(self.0.targets.limits))
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("guard", self.guard()).finish_non_exhaustive()
    }
}

/// Shared values that exist as long as they are in use.
struct WeakCache<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for WeakCache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> WeakCache<K, V> {
    fn get_or_create(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = all.get(&key).and_then(Weak::upgrade) {
            return one;
        }
        all.retain(|_, one| one.strong_count() > 0);
        let one = Arc::new(make());
        all.insert(key, Arc::downgrade(&one));
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress_guard::EgressGuardConfig;
    use crate::remote::{SecretsConfig, SystemSecrets};
    use serde_json::json;

    #[test]
    fn a_token_is_not_sent_without_tls_outside_trusted_networks() {
        let allow = ["ledger.internal", "192.0.2.0/24"].map(|entry| entry.parse().unwrap()).to_vec();
        let guard = EgressGuard::new(EgressGuardConfig { allow, ..EgressGuardConfig::default() });
        let secrets = SystemSecrets::new(SecretsConfig { env_prefix: String::new(), folders: Vec::new() });
        let outbound = Outbound::new(guard, secrets, BreakerConfig::default()).unwrap();
        let bearer = json!({"bearer": {"secretRef": "env:TOKEN"}});
        let hmac = json!({"hmac": {"keyId": "k", "secret": {"secretRef": "env:KEY"}}});
        let check = |endpoint: &str, auth: &serde_json::Value| {
            let declared = json!({
                "name": "a", "category": "other", "transport": "rest", "endpoint": endpoint, "auth": auth,
            });
            outbound.check_auth(&RemoteDeclaration::read(&declared).unwrap())
        };
        for endpoint in [
            "http://pay.test/",
            "http://1.1.1.1/",
            "http://[2606:4700::1111]/",
            "http://169.254.169.254/",
            "http://ledger.internal.test/",
            "http://localhost.test/",
            "http://[::ffff:1.1.1.1]/",
        ] {
            let error = check(endpoint, &bearer).unwrap_err();
            assert!(error.to_string().starts_with("auth.bearer must be absent"), "{endpoint}: {error}");
            assert_eq!(check(endpoint, &hmac), Ok(()), "a key is never sent");
            assert_eq!(check(&endpoint.replace("http:", "https:"), &bearer), Ok(()));
        }
        for endpoint in [
            "http://127.0.0.1:8080/",
            "http://[::1]/",
            "http://10.1.2.3/",
            "http://localhost:8080/",
            "http://ledger.internal./",
            "http://192.0.2.7/",
        ] {
            assert_eq!(check(endpoint, &bearer), Ok(()), "{endpoint}");
        }
    }
}
