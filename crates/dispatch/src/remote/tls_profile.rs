//! The TLS of one activity: the authorities of the web and nothing to show, or what is declared.
//!
//! What is declared is read when a connection is made, so a certificate that was replaced is shown on the next one. Knows nothing of hosts.

use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use tokio_rustls::TlsConnector;

use super::declaration::Tls;
use super::secrets::{Secret, SecretError, SecretRef, Secrets};
use crate::http::{Identity, Offer, TlsError, TlsRoots};
use crate::transport::Failure;

/// How connections of one kind are secured.
pub(super) enum TlsProfile {
    /// As everybody's are.
    Usual(TlsConnector),
    /// As it is declared.
    Declared(Box<Declared>),
}

pub(super) struct Declared {
    tls: Tls,
    offer: Offer,
    secrets: Arc<dyn Secrets>,
    /// What was made of texts with this digest: sessions can be resumed as long as they are the same.
    made: Mutex<Option<([u8; 32], TlsConnector)>>,
}

impl TlsProfile {
    pub(super) fn declared(tls: Tls, offer: Offer, secrets: Arc<dyn Secrets>) -> Self {
        Self::Declared(Box::new(Declared { tls, offer, secrets, made: Mutex::new(None) }))
    }

    /// What the next connection is made with.
    pub(super) async fn connector(&self) -> Result<TlsConnector, Failure> {
        match self {
            Self::Usual(connector) => Ok(connector.clone()),
            Self::Declared(declared) => declared.connector().await,
        }
    }
}

impl Declared {
    async fn connector(&self) -> Result<TlsConnector, Failure> {
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
        let digest: [u8; 32] = digest.finalize().into();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, connector)) = &*made
            && *of == digest
        {
            return Ok(connector.clone());
        }
        let connector = connector(ca, client, self.offer)?;
        *made = Some((digest, connector.clone()));
        Ok(connector)
    }
}

fn connector(
    ca: Option<(&SecretRef, Secret)>,
    client: Option<(&SecretRef, Secret, Secret)>,
    offer: Offer,
) -> Result<TlsConnector, Failure> {
    let unusable = |reference: &SecretRef, expected| {
        Failure::from(SecretError::Unusable { reference: reference.clone(), expected })
    };
    let roots = match ca {
        Some((reference, text)) => TlsRoots::of_pem(text.expose())
            .ok_or_else(|| unusable(reference, "a PEM text of certificates"))?,
        None => TlsRoots::of_the_web(),
    };
    let Some((reference, chain, key)) = client else {
        let failed = |error: TlsError| Failure::for_good("TlsUnavailable", error.to_string());
        return roots.connector(offer, None).map_err(failed);
    };
    let fits = "a PEM text of certificates with a key that fits";
    let identity = Identity::of_pem(chain.expose(), key.expose()).ok_or_else(|| unusable(reference, fits))?;
    roots.connector(offer, Some(identity)).map_err(|_| unusable(reference, fits))
}
