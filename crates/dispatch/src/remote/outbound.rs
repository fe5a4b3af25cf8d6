//! What all remote activities share: the guard, the secrets, the connections, the limits and the breakers of the targets they have in
//! common.
//!
//! Activities at one target use the same connections if they show the same certificate, and the same line and breaker in any case. Knows
//! nothing of what activities are called.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_rustls::TlsConnector;

use super::breaker::{Breaker, BreakerConfig};
use super::declaration::{DeclarationError, RemoteDeclaration, Tls};
use super::limits::{Line, TargetLimits};
use super::pool::{Origin, Speaks};
use super::secrets::Secrets;
use super::tls_profile::TlsProfile;
use crate::guard::{Guard, Scheme, Target};
use crate::http::{Connector, Offer, TlsError, TlsRoots};

/// What holds for every target, each for itself.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TargetConfig {
    /// When it is left alone for a while.
    pub breaker: BreakerConfig,
    /// What it takes of all activities together.
    pub limits: TargetLimits,
}

impl From<BreakerConfig> for TargetConfig {
    /// Without limits.
    fn from(breaker: BreakerConfig) -> Self {
        Self { breaker, limits: TargetLimits::default() }
    }
}

/// The way out. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Outbound(Arc<Shared>);

struct Shared {
    connector: Connector,
    secrets: Arc<dyn Secrets>,
    targets: TargetConfig,
    either: TlsConnector,
    http2: TlsConnector,
    origins: Users<(String, Speaks, Tls), Origin>,
    breakers: Users<String, Breaker>,
    lines: Users<String, Line>,
}

impl Outbound {
    /// A way out that leads to what the guard admits, with secrets from there.
    pub fn new(
        guard: Guard,
        secrets: impl Secrets,
        targets: impl Into<TargetConfig>,
    ) -> Result<Self, TlsError> {
        Self::with(Connector::new(guard), Arc::new(secrets), targets)
    }

    pub(super) fn with(
        connector: Connector,
        secrets: Arc<dyn Secrets>,
        targets: impl Into<TargetConfig>,
    ) -> Result<Self, TlsError> {
        let tls = |offer| TlsRoots::of_the_web().connector(offer, None);
        let (either, http2) = (tls(Offer::Either)?, tls(Offer::Http2)?);
        Ok(Self(Arc::new(Shared {
            connector,
            secrets,
            targets: targets.into(),
            either,
            http2,
            origins: Users::default(),
            breakers: Users::default(),
            lines: Users::default(),
        })))
    }

    /// Whether the declaration's token would be sent where others can read it: over the networks of others without TLS. A key that requests
    /// are signed with is never sent.
    pub(super) fn check_auth(&self, declaration: &RemoteDeclaration) -> Result<(), DeclarationError> {
        let target = Target::read(&declaration.endpoint)?;
        if declaration.auth.bearer.is_none()
            || target.scheme() == Scheme::Https
            || self.guard().is_near(&target)
        {
            return Ok(());
        }
        let expected =
            "absent where the endpoint is http, unless its host is a private address or in dispatch.allow";
        Err(DeclarationError::Wrong { field: "auth.bearer".to_owned(), expected })
    }

    /// What decides who may be called.
    pub(super) fn guard(&self) -> &Guard {
        self.0.connector.guard()
    }

    /// Where secrets are from.
    pub(super) fn secrets(&self) -> &dyn Secrets {
        &*self.0.secrets
    }

    /// The connections to a target.
    pub(super) fn origin(&self, target: &Target, speaks: Speaks, tls: &Tls) -> Arc<Origin> {
        let shared = &self.0;
        shared.origins.get((target.to_string(), speaks, tls.clone()), || {
            let usual = *tls == Tls::default();
            let profile = match speaks {
                Speaks::Either if usual => TlsProfile::Usual(shared.either.clone()),
                Speaks::Http2 if usual => TlsProfile::Usual(shared.http2.clone()),
                Speaks::Either => TlsProfile::declared(tls.clone(), Offer::Either, shared.secrets.clone()),
                Speaks::Http2 => TlsProfile::declared(tls.clone(), Offer::Http2, shared.secrets.clone()),
            };
            Origin::new(target.clone(), shared.connector.clone(), profile, speaks)
        })
    }

    /// The breaker of a target, whoever calls it.
    pub(super) fn breaker(&self, target: &Target) -> Arc<Breaker> {
        self.0.breakers.get(target.to_string(), || Breaker::new(self.0.targets.breaker))
    }

    /// The line before a target, whoever calls it.
    pub(super) fn line(&self, target: &Target) -> Arc<Line> {
        self.0.lines.get(target.to_string(), || Line::of_target(self.0.targets.limits))
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("guard", self.guard()).finish_non_exhaustive()
    }
}

/// Things that exist as long as somebody uses them.
struct Users<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for Users<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Users<K, V> {
    fn get(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
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
    use crate::guard::GuardConfig;
    use crate::remote::{SecretsConfig, SystemSecrets};
    use serde_json::json;

    #[test]
    fn a_token_is_not_sent_in_the_clear_over_the_networks_of_others() {
        let allow = ["ledger.internal", "192.0.2.0/24"].map(|entry| entry.parse().unwrap()).to_vec();
        let guard = Guard::new(GuardConfig { allow, ..GuardConfig::default() });
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
            let refused = check(endpoint, &bearer).unwrap_err();
            assert!(refused.to_string().starts_with("auth.bearer must be absent"), "{endpoint}: {refused}");
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
