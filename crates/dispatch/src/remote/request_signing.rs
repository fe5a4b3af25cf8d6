//! Authenticates requests with a bearer token, an HMAC signature, or both.
//!
//! Secrets are read for every request, so that a replaced token is used at once. Knows nothing about connections.
//!
//! A signature is the hexadecimal HMAC-SHA256 of five lines: `METHOD`, `PATH` (with its query, as it is sent),
//! `TIMESTAMP` (epoch milliseconds), `NONCE` and the hexadecimal SHA-256 of the body, without a line end after the
//! last.

use std::fmt::Write;

use abide_ids::Timestamp;
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::declaration::AuthDeclaration;
use super::secrets::{SecretError, Secrets};
use crate::transport::CallFailure;

/// The header with the signature.
pub const SIGNATURE_HEADER: HeaderName = HeaderName::from_static("x-abide-signature");
/// The header with the id of the key.
pub const SIGNATURE_KEY_ID_HEADER: HeaderName = HeaderName::from_static("x-abide-signature-key-id");
/// The header with the time of the signature.
pub const SIGNATURE_TIMESTAMP_HEADER: HeaderName = HeaderName::from_static("x-abide-signature-timestamp");
/// The header with a random nonce: one that occurs twice means a replay.
pub const SIGNATURE_NONCE_HEADER: HeaderName = HeaderName::from_static("x-abide-signature-nonce");

/// The parts of a request that are signed.
#[derive(Clone, Copy, Debug)]
pub struct SigningInput<'s> {
    pub method: &'s str,
    /// Path and query, as they are sent.
    pub path: &'s str,
    /// In epoch milliseconds.
    pub signed_at: Timestamp,
    /// In hexadecimal digits.
    pub nonce: &'s str,
    /// The whole body.
    pub body: &'s [u8],
}

impl SigningInput<'_> {
    /// The signature with this key. A receiver computes it again and compares in constant time.
    pub fn signature(&self, key: &[u8]) -> String {
        let Self { method, path, signed_at: Timestamp(signed_at_ms), nonce, body } = self;
        let digest = hex(&Sha256::digest(body));
        let text = format!("{method}\n{path}\n{signed_at_ms}\n{nonce}\n{digest}");
        // HMAC keys may have any length, so this cannot fail.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return String::new() };
        mac.update(text.as_bytes());
        hex(&mac.finalize().into_bytes())
    }
}

/// Adds the declared credentials to the headers of a request.
pub(super) async fn add_credentials(
    auth: &AuthDeclaration,
    secrets: &dyn Secrets,
    request: SigningInput<'_>,
    headers: &mut HeaderMap,
) -> Result<(), CallFailure> {
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
        getrandom::fill(&mut random).map_err(|_| {
            CallFailure::retryable("SignatureFailed", "no random numbers available for the signature")
        })?;
        let nonce = hex(&random);
        let signed = SigningInput { nonce: &nonce, ..request };
        for (name, value) in [
            (SIGNATURE_HEADER, signed.signature(key.expose())),
            (SIGNATURE_KEY_ID_HEADER, hmac.key_id.clone()),
            (SIGNATURE_TIMESTAMP_HEADER, request.signed_at.0.to_string()),
            (SIGNATURE_NONCE_HEADER, nonce),
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
    use crate::remote::secrets::{Secret, SecretFuture, SecretRef};

    /// Returns the same secret for every reference.
    struct FixedSecret(&'static str);

    impl Secrets for FixedSecret {
        fn reveal<'s>(&'s self, _: &'s SecretRef) -> SecretFuture<'s> {
            Box::pin(async { Ok(Secret::new(self.0.as_bytes())) })
        }
    }

    fn reference() -> SecretRef {
        SecretRef::parse("env:TOKEN").unwrap()
    }

    fn hmac() -> AuthDeclaration {
        let hmac = declaration::HmacKey { key_id: "k1".to_owned(), secret: reference() };
        AuthDeclaration { bearer: None, hmac: Some(hmac) }
    }

    const REQUEST: SigningInput<'static> = SigningInput {
        method: "POST",
        path: "/activities/charge?v=1",
        signed_at: Timestamp(1_700_000_000_000),
        nonce: "",
        body: b"{}",
    };

    /// Made with `openssl dgst -sha256 -hmac`: receivers in other languages compute the same.
    #[test]
    fn a_signature_matches_other_implementations() {
        let signed = SigningInput { nonce: "00112233445566778899aabbccddeeff", ..REQUEST };
        assert_eq!(
            signed.signature(b"k3y"),
            "58d8a27912935857af9f95a6a830da73b5776a84d62dc3328422efea17d70189"
        );
        for other in [
            SigningInput { method: "PUT", ..signed },
            SigningInput { path: "/activities/charge", ..signed },
            SigningInput { signed_at: Timestamp(1_700_000_000_001), ..signed },
            SigningInput { nonce: "0", ..signed },
            SigningInput { body: b"{} ", ..signed },
        ] {
            assert_ne!(other.signature(b"k3y"), signed.signature(b"k3y"), "{other:?}");
        }
        assert_ne!(signed.signature(b"k3z"), signed.signature(b"k3y"));
    }

    #[test]
    fn the_example_in_the_reference_documentation_is_correct() {
        let reference = include_str!("../../../../docs/reference/dispatch.md");
        let (_, section) = reference.split_once("## Signatures\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let mut blocks =
            section.split("```").skip(1).step_by(2).map(|block| block.strip_prefix("text\n").unwrap());
        let text = blocks.next().unwrap().trim_end();
        let [method, path, timestamp, nonce, digest] = *text.lines().collect::<Vec<_>>() else {
            panic!("{text}")
        };
        let signed = SigningInput {
            method,
            path,
            signed_at: Timestamp(timestamp.parse().unwrap()),
            nonce,
            body: b"{}",
        };
        assert_eq!(digest, hex(&Sha256::digest(signed.body)));
        assert_eq!(blocks.next().unwrap().trim_end(), signed.signature(b"k3y"));
        assert!(section.contains("`{}`") && section.contains("`k3y`"));
        for header in
            [SIGNATURE_HEADER, SIGNATURE_KEY_ID_HEADER, SIGNATURE_TIMESTAMP_HEADER, SIGNATURE_NONCE_HEADER]
        {
            assert!(section.contains(&format!("| `{header}` |")), "{header}");
        }
    }

    #[tokio::test]
    async fn a_signature_can_be_verified_and_no_nonce_is_used_twice() {
        let mut nonces = std::collections::BTreeSet::new();
        for _ in 0..10 {
            let mut headers = HeaderMap::new();
            add_credentials(&hmac(), &FixedSecret("k3y"), REQUEST, &mut headers).await.unwrap();
            let text = |name: HeaderName| headers[name].to_str().unwrap().to_owned();
            let nonce = text(SIGNATURE_NONCE_HEADER);
            assert_eq!(text(SIGNATURE_HEADER), SigningInput { nonce: &nonce, ..REQUEST }.signature(b"k3y"));
            assert_eq!(
                (text(SIGNATURE_KEY_ID_HEADER), text(SIGNATURE_TIMESTAMP_HEADER)),
                ("k1".to_owned(), "1700000000000".to_owned())
            );
            assert_eq!(nonce.len(), 32);
            nonces.insert(nonce);
        }
        assert_eq!(nonces.len(), 10);
    }

    #[tokio::test]
    async fn a_token_is_sent_as_it_is_and_never_shown() {
        let auth = AuthDeclaration { bearer: Some(reference()), hmac: None };
        let mut headers = HeaderMap::new();
        add_credentials(&auth, &FixedSecret("s3cret"), REQUEST, &mut headers).await.unwrap();
        assert_eq!(headers[AUTHORIZATION].as_bytes(), b"Bearer s3cret");
        assert!(!format!("{headers:?}").contains("s3cret"));
        for unusable in ["s3cret\r\nx: y", "s3 cret", "s3cret\n", "s3crét"] {
            let failure = add_credentials(&auth, &FixedSecret(unusable), REQUEST, &mut HeaderMap::new())
                .await
                .unwrap_err();
            assert_eq!((failure.code.as_str(), failure.retryable), ("SecretUnavailable", false));
            assert!(!failure.message.contains("s3c"), "{failure}");
        }
    }

    #[tokio::test]
    async fn nothing_is_added_where_nothing_is_declared() {
        let mut headers = HeaderMap::new();
        add_credentials(&AuthDeclaration::default(), &FixedSecret("s3cret"), REQUEST, &mut headers)
            .await
            .unwrap();
        assert!(headers.is_empty());
    }
}
