//! TLS for outgoing connections: which certificates are believed, which are shown, and by whom the arithmetic is done.
//!
//! Roots are compiled in and the provider is `ring`, so that a binary needs no files and no libraries of the system. Knows nothing of
//! what is sent, and not where certificates come from.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

/// TLS could not be set up: the provider and the protocol versions, or a certificate and its key, do not fit together.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("TLS cannot be set up")]
pub struct TlsError(#[source] Error);

/// Who may vouch for a server.
#[derive(Clone, Debug)]
pub(crate) struct TlsRoots(RootCertStore);

/// What this side shows if it is asked.
pub(crate) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Which versions of HTTP are offered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Offer {
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2 alone.
    Http2,
    /// HTTP/2, else HTTP/1.1.
    Either,
}

impl TlsRoots {
    /// The certificate authorities of the web.
    pub(crate) fn of_the_web() -> Self {
        Self(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
    }

    /// These authorities and no others; none if the text has none, or one that cannot be read.
    pub(crate) fn of_pem(text: &[u8]) -> Option<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(text)? {
            roots.add(certificate).ok()?;
        }
        Some(Self(roots))
    }

    /// Nobody but the server of the tests.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(super::test_server::certificate()).unwrap();
        Self(roots)
    }

    /// Makes connections to servers these roots vouch for.
    pub(crate) fn connector(
        self,
        offer: Offer,
        identity: Option<Identity>,
    ) -> Result<TlsConnector, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(TlsError)?;
        let builder = builder.with_root_certificates(self.0);
        let mut config = match identity {
            Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key).map_err(TlsError)?,
            None => builder.with_no_client_auth(),
        };
        let (http1, http2) = (b"http/1.1".to_vec(), b"h2".to_vec());
        config.alpn_protocols = match offer {
            Offer::Http1 => vec![http1],
            Offer::Http2 => vec![http2],
            Offer::Either => vec![http2, http1],
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

impl Identity {
    /// A chain and its key; none if one of the texts is not that.
    pub(crate) fn of_pem(chain: &[u8], key: &[u8]) -> Option<Self> {
        Some(Self { chain: certificates(chain)?, key: PrivateKeyDer::from_pem_slice(key).ok()? })
    }
}

/// The certificates of a text, of which there is at least one.
fn certificates(text: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    all.ok().filter(|all| !all.is_empty())
}
