//! The TLS settings of one connection pool: the authorities of the public web, or the declared certificates.
//!
//! Declared certificates are read when a connection is opened, so a replaced one is used for the next connection. Knows
//! nothing about hosts.

use std::sync::{Arc, Mutex, PoisonError};

use abide_ids::Digest;
use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsConnector;

use super::declaration::TlsDeclaration;
use super::secrets::{Secret, SecretError, SecretRef, Secrets};
use crate::http::{AlpnOffer, ClientIdentity, TlsError, TlsRoots};
use crate::transport::CallFailure;

/// The TLS settings of connections.
pub(super) enum TlsProfile {
    /// Trusts the authorities of the public web, and presents no certificate.
    WebPki(TlsConnector),
    /// Uses the declared certificates.
    Declared(Box<DeclaredTls>),
}

pub(super) struct DeclaredTls {
    tls: TlsDeclaration,
    offer: AlpnOffer,
    secrets: Arc<dyn Secrets>,
    /// The connector for certificates with this digest. Sessions can be resumed as long as these stay the same.
    cached: Mutex<Option<(Digest, TlsConnector)>>,
}

impl TlsProfile {
    pub(super) fn declared(tls: TlsDeclaration, offer: AlpnOffer, secrets: Arc<dyn Secrets>) -> Self {
        Self::Declared(Box::new(DeclaredTls { tls, offer, secrets, cached: Mutex::new(None) }))
    }

    /// The connector for the next connection.
    pub(super) async fn connector(&self) -> Result<TlsConnector, CallFailure> {
        match self {
            Self::WebPki(connector) => Ok(connector.clone()),
            Self::Declared(declared) => declared.connector().await,
        }
    }
}

impl DeclaredTls {
    async fn connector(&self) -> Result<TlsConnector, CallFailure> {
        let ca = match &self.tls.ca {
            Some(reference) => Some((reference, self.secrets.reveal(reference).await?)),
            None => None,
        };
        let client = match &self.tls.client {
            Some(client) => {
                let chain = self.secrets.reveal(&client.certificate).await?;
                Some((&client.certificate, chain, self.secrets.reveal(&client.key).await?))
            }
            None => None,
        };
        let mut digest = Sha256::new();
        for text in ca.iter().map(|(_, text)| text).chain(client.iter().flat_map(|(_, a, b)| [a, b])) {
            digest.update(Sha256::digest(text.expose()));
        }
        let digest = Digest(digest.finalize().into());
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((cached_digest, connector)) = &*cached
            && *cached_digest == digest
        {
            return Ok(connector.clone());
        }
        let connector = build_connector(ca, client, self.offer)?;
        *cached = Some((digest, connector.clone()));
        Ok(connector)
    }
}

fn build_connector(
    ca: Option<(&SecretRef, Secret)>,
    client: Option<(&SecretRef, Secret, Secret)>,
    offer: AlpnOffer,
) -> Result<TlsConnector, CallFailure> {
    let unusable = |reference: &SecretRef, expected| {
        CallFailure::from(SecretError::Unusable { reference: reference.clone(), expected })
    };
    let roots = match ca {
        Some((reference, text)) => TlsRoots::from_pem(text.expose())
            .ok_or_else(|| unusable(reference, "a PEM text of certificates"))?,
        None => TlsRoots::web_pki(),
    };
    let Some((reference, chain, key)) = client else {
        let failed = |error: TlsError| CallFailure::permanent("TlsUnavailable", error.to_string());
        return roots.connector(offer, None).map_err(failed);
    };
    let expected = "a PEM text of certificates with a matching key";
    let identity = ClientIdentity::from_pem(chain.expose(), key.expose())
        .ok_or_else(|| unusable(reference, expected))?;
    roots.connector(offer, Some(identity)).map_err(|_| unusable(reference, expected))
}
