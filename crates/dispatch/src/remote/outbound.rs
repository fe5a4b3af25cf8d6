//! What all remote activities share: the guard, the secrets, the connections and the breakers of the targets they have in common.
//!
//! Activities at one target use the same connections if they show the same certificate, and the same breaker in any case. Knows nothing of
//! what activities are called.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_rustls::TlsConnector;

use super::breaker::{Breaker, BreakerConfig};
use super::declaration::Tls;
use super::pool::{Origin, Speaks};
use super::secrets::Secrets;
use super::tls_profile::TlsProfile;
use crate::guard::{Guard, Target};
use crate::http::{Connector, Offer, TlsError, TlsRoots};

/// The way out. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Outbound(Arc<Shared>);

struct Shared {
    connector: Connector,
    secrets: Arc<dyn Secrets>,
    breaker: BreakerConfig,
    either: TlsConnector,
    http2: TlsConnector,
    origins: Users<(String, Speaks, Tls), Origin>,
    breakers: Users<String, Breaker>,
}

impl Outbound {
    /// A way out that leads to what the guard admits, with secrets from there.
    pub fn new(guard: Guard, secrets: impl Secrets, breaker: BreakerConfig) -> Result<Self, TlsError> {
        Self::with(Connector::new(guard), Arc::new(secrets), breaker)
    }

    pub(super) fn with(
        connector: Connector,
        secrets: Arc<dyn Secrets>,
        breaker: BreakerConfig,
    ) -> Result<Self, TlsError> {
        let tls = |offer| TlsRoots::of_the_web().connector(offer, None);
        let (either, http2) = (tls(Offer::Either)?, tls(Offer::Http2)?);
        let (origins, breakers) = (Users::default(), Users::default());
        Ok(Self(Arc::new(Shared { connector, secrets, breaker, either, http2, origins, breakers })))
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
        self.0.breakers.get(target.to_string(), || Breaker::new(self.0.breaker))
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
