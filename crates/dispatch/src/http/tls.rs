//! TLS for outgoing connections: which certificates are believed, and by whom the arithmetic is done.
//!
//! Roots are compiled in and the provider is `ring`, so that a binary needs no files and no libraries of the system. Knows nothing of
//! what is sent.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

/// TLS could not be set up: the provider and the protocol versions do not fit together.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("TLS cannot be set up")]
pub struct TlsError(#[source] Error);

/// Who may vouch for a server.
#[derive(Clone, Debug)]
pub(crate) struct TlsRoots(RootCertStore);

impl TlsRoots {
    /// The certificate authorities of the web.
    pub(crate) fn of_the_web() -> Self {
        Self(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
    }

    /// Nobody but the server of the tests.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(super::test_server::certificate()).unwrap();
        Self(roots)
    }

    /// Makes connections to servers these roots vouch for, speaking HTTP/1.1.
    pub(super) fn connector(self) -> Result<TlsConnector, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(TlsError)?;
        let mut config = builder.with_root_certificates(self.0).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}
