//! TLS for outgoing connections: trusted roots, client certificates, and the offered HTTP versions.
//!
//! Roots are compiled in and the crypto provider is `ring`, so that a binary needs no files or libraries of the system.
//! Knows nothing about what is sent, nor about where certificates come from.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

/// TLS could not be set up: the provider and the protocol versions, or a certificate and its key, do not match.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("cannot set up TLS")]
pub struct TlsError(#[source] Error);

/// The certificate authorities that are trusted.
#[derive(Clone, Debug)]
pub(crate) struct TlsRoots(RootCertStore);

/// The certificate and key that this side presents if the server asks.
pub(crate) struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// The HTTP versions that are offered to the server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum AlpnOffer {
    Http1,
    Http2,
    /// HTTP/2, else HTTP/1.1.
    Either,
}

impl TlsRoots {
    /// The certificate authorities of the public web.
    pub(crate) fn web_pki() -> Self {
        Self(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
    }

    /// Only these authorities; none if the text contains none, or one that cannot be parsed.
    pub(crate) fn from_pem(text: &[u8]) -> Option<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in parse_certificates(text)? {
            roots.add(certificate).ok()?;
        }
        Some(Self(roots))
    }

    /// Only the certificate of the test server.
    #[cfg(test)]
    pub(crate) fn for_test_server() -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(super::test_server::certificate()).unwrap();
        Self(roots)
    }

    /// A connector that trusts the servers certified by these roots.
    pub(crate) fn connector(
        self,
        offer: AlpnOffer,
        identity: Option<ClientIdentity>,
    ) -> Result<TlsConnector, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(TlsError)?;
        let builder = builder.with_root_certificates(self.0);
        let mut config = match identity {
            Some(ClientIdentity { chain, key }) => {
                builder.with_client_auth_cert(chain, key).map_err(TlsError)?
            }
            None => builder.with_no_client_auth(),
        };
        let http1 = b"http/1.1".to_vec();
        let http2 = b"h2".to_vec();
        config.alpn_protocols = match offer {
            AlpnOffer::Http1 => vec![http1],
            AlpnOffer::Http2 => vec![http2],
            AlpnOffer::Either => vec![http2, http1],
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

impl ClientIdentity {
    /// A certificate chain and its key; none if one of the texts cannot be parsed.
    pub(crate) fn from_pem(chain: &[u8], key: &[u8]) -> Option<Self> {
        Some(Self { chain: parse_certificates(chain)?, key: PrivateKeyDer::from_pem_slice(key).ok()? })
    }
}

/// The certificates in a text; none if there are none, or one cannot be parsed.
fn parse_certificates(text: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    all.ok().filter(|all| !all.is_empty())
}
