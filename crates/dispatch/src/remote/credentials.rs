//! How a request shows who it comes from: a bearer token, a signature, or both.
//!
//! Values are read for every request, so that a token that was replaced is used at once. Knows nothing of connections.
//!
//! A signature is the hexadecimal HMAC-SHA256 of five lines, `METHOD`, `PATH` (with its query, as it is sent), `TIMESTAMP` (epoch
//! milliseconds), `NONCE` and the hexadecimal SHA-256 of the body, without a line end after the last.

use std::fmt::Write;

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::declaration::Auth;
use super::secrets::{SecretError, Secrets};
use crate::transport::Failure;

/// The signature.
pub const SIGNATURE: HeaderName = HeaderName::from_static("x-abide-signature");
/// Which key it was made with.
pub const SIGNATURE_KEY_ID: HeaderName = HeaderName::from_static("x-abide-signature-key-id");
/// When it was made.
pub const SIGNATURE_TIMESTAMP: HeaderName = HeaderName::from_static("x-abide-signature-timestamp");
/// Random: the same twice is a replay.
pub const SIGNATURE_NONCE: HeaderName = HeaderName::from_static("x-abide-signature-nonce");

/// What is signed.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'s> {
    /// `POST`.
    pub method: &'s str,
    /// Path and query, as they are sent.
    pub path: &'s str,
    /// Epoch milliseconds.
    pub timestamp_ms: i64,
    /// Hexadecimal.
    pub nonce: &'s str,
    /// All of it.
    pub body: &'s [u8],
}

impl Signed<'_> {
    /// The signature under this key. A receiver computes it anew and compares in constant time.
    pub fn signature(&self, key: &[u8]) -> String {
        let Self { method, path, timestamp_ms, nonce, body } = self;
        let digest = hex(&Sha256::digest(body));
        let text = format!("{method}\n{path}\n{timestamp_ms}\n{nonce}\n{digest}");
        // Keys of this kind may have any length, so there is always one.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return String::new() };
        mac.update(text.as_bytes());
        hex(&mac.finalize().into_bytes())
    }
}

/// Adds what is declared to the headers of a request.
pub(super) async fn add(
    auth: &Auth,
    secrets: &dyn Secrets,
    request: Signed<'_>,
    headers: &mut HeaderMap,
) -> Result<(), Failure> {
    if let Some(reference) = &auth.bearer {
        let token = secrets.reveal(reference).await?;
        let is_token = token.expose().iter().all(u8::is_ascii_graphic);
        let value = HeaderValue::from_bytes(&[b"Bearer ", token.expose()].concat());
        let mut value = value.ok().filter(|_| is_token).ok_or_else(|| SecretError::Unusable {
            reference: reference.clone(),
            expected: "a token: printable ASCII without blanks",
        })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    if let Some(hmac) = &auth.hmac {
        let key = secrets.reveal(&hmac.secret).await?;
        let mut random = [0; 16];
        getrandom::fill(&mut random)
            .map_err(|_| Failure::retryable("SignatureFailed", "there are no random numbers to sign with"))?;
        let nonce = hex(&random);
        let signed = Signed { nonce: &nonce, ..request };
        for (name, value) in [
            (SIGNATURE, signed.signature(key.expose())),
            (SIGNATURE_KEY_ID, hmac.key_id.clone()),
            (SIGNATURE_TIMESTAMP, request.timestamp_ms.to_string()),
            (SIGNATURE_NONCE, nonce),
        ] {
            // All are printable: hexadecimal, decimal, and an id that was checked.
            let value = HeaderValue::try_from(value);
            headers.insert(name, value.unwrap_or_else(|_| HeaderValue::from_static("")));
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::declaration;
    use crate::remote::secrets::{Revealing, Secret, SecretRef};

    /// Gives out what is asked for by name.
    struct Spoken(&'static str);

    impl Secrets for Spoken {
        fn reveal<'s>(&'s self, _: &'s SecretRef) -> Revealing<'s> {
            Box::pin(async { Ok(Secret::new(self.0.as_bytes())) })
        }
    }

    fn reference() -> SecretRef {
        SecretRef::parse("env:TOKEN").unwrap()
    }

    fn hmac() -> Auth {
        let hmac = declaration::Hmac { key_id: "k1".to_owned(), secret: reference() };
        Auth { bearer: None, hmac: Some(hmac) }
    }

    const REQUEST: Signed<'static> = Signed {
        method: "POST",
        path: "/activities/charge?v=1",
        timestamp_ms: 1_700_000_000_000,
        nonce: "",
        body: b"{}",
    };

    /// Made with `openssl dgst -sha256 -hmac`: receivers in other languages make the same.
    #[test]
    fn a_signature_is_what_others_make_it() {
        let signed = Signed { nonce: "00112233445566778899aabbccddeeff", ..REQUEST };
        assert_eq!(
            signed.signature(b"k3y"),
            "58d8a27912935857af9f95a6a830da73b5776a84d62dc3328422efea17d70189"
        );
        for other in [
            Signed { method: "PUT", ..signed },
            Signed { path: "/activities/charge", ..signed },
            Signed { timestamp_ms: 1_700_000_000_001, ..signed },
            Signed { nonce: "0", ..signed },
            Signed { body: b"{} ", ..signed },
        ] {
            assert_ne!(other.signature(b"k3y"), signed.signature(b"k3y"), "{other:?}");
        }
        assert_ne!(signed.signature(b"k3z"), signed.signature(b"k3y"));
    }

    #[test]
    fn the_reference_says_how_a_signature_is_made() {
        let reference = include_str!("../../../../docs/reference/dispatch.md");
        let (_, section) = reference.split_once("## Signatures\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let mut blocks =
            section.split("```").skip(1).step_by(2).map(|block| block.strip_prefix("text\n").unwrap());
        let text = blocks.next().unwrap().trim_end();
        let [method, path, timestamp, nonce, digest] = *text.lines().collect::<Vec<_>>() else {
            panic!("{text}")
        };
        let signed = Signed { method, path, timestamp_ms: timestamp.parse().unwrap(), nonce, body: b"{}" };
        assert_eq!(digest, hex(&Sha256::digest(signed.body)));
        assert_eq!(blocks.next().unwrap().trim_end(), signed.signature(b"k3y"));
        assert!(section.contains("`{}`") && section.contains("`k3y`"));
        for header in [SIGNATURE, SIGNATURE_KEY_ID, SIGNATURE_TIMESTAMP, SIGNATURE_NONCE] {
            assert!(section.contains(&format!("| `{header}` |")), "{header}");
        }
    }

    #[tokio::test]
    async fn what_is_sent_can_be_checked_and_no_nonce_is_used_twice() {
        let mut nonces = std::collections::BTreeSet::new();
        for _ in 0..10 {
            let mut headers = HeaderMap::new();
            add(&hmac(), &Spoken("k3y"), REQUEST, &mut headers).await.unwrap();
            let text = |name: HeaderName| headers[name].to_str().unwrap().to_owned();
            let nonce = text(SIGNATURE_NONCE);
            assert_eq!(text(SIGNATURE), Signed { nonce: &nonce, ..REQUEST }.signature(b"k3y"));
            assert_eq!(
                (text(SIGNATURE_KEY_ID), text(SIGNATURE_TIMESTAMP)),
                ("k1".to_owned(), "1700000000000".to_owned())
            );
            assert_eq!(nonce.len(), 32);
            nonces.insert(nonce);
        }
        assert_eq!(nonces.len(), 10);
    }

    #[tokio::test]
    async fn a_token_is_sent_as_it_is_and_never_shown() {
        let auth = Auth { bearer: Some(reference()), hmac: None };
        let mut headers = HeaderMap::new();
        add(&auth, &Spoken("s3cret"), REQUEST, &mut headers).await.unwrap();
        assert_eq!(headers[AUTHORIZATION].as_bytes(), b"Bearer s3cret");
        assert!(!format!("{headers:?}").contains("s3cret"));
        for unusable in ["s3cret\r\nx: y", "s3 cret", "s3cret\n", "s3crét"] {
            let failure = add(&auth, &Spoken(unusable), REQUEST, &mut HeaderMap::new()).await.unwrap_err();
            assert_eq!((failure.code.as_str(), failure.retryable), ("SecretUnavailable", false));
            assert!(!failure.message.contains("s3c"), "{failure}");
        }
    }

    #[tokio::test]
    async fn nothing_is_added_where_nothing_is_declared() {
        let mut headers = HeaderMap::new();
        add(&Auth::default(), &Spoken("s3cret"), REQUEST, &mut headers).await.unwrap();
        assert!(headers.is_empty());
    }
}
