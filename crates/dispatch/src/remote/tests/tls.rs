//! TLS: trusted authorities, client certificates, and the HTTP version that both sides agree on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Version;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::fixtures::*;
use super::server::{Server, reply};
use crate::http::Connector;
use crate::remote::secrets::SecretFuture;
use crate::remote::{BreakerConfig, Outbound, RemoteActivity, SecretRef, Secrets, WireFormat};

const SERVER: &[u8] = include_bytes!("../../http/testdata/service.test.der");
const SERVER_KEY: &[u8] = include_bytes!("../../http/testdata/service.test.key.der");
const CLIENT: &[u8] = include_bytes!("../../http/testdata/client.test.der");
const CLIENT_KEY: &[u8] = include_bytes!("../../http/testdata/client.test.key.der");

fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der)).into_bytes()
}

fn secrets() -> FixedSecrets {
    let all = [
        ("env:CA", pem("CERTIFICATE", SERVER)),
        ("env:OTHER_CA", pem("CERTIFICATE", CLIENT)),
        ("env:CERTIFICATE", pem("CERTIFICATE", CLIENT)),
        ("env:KEY", pem("PRIVATE KEY", CLIENT_KEY)),
        ("env:OTHER_KEY", pem("PRIVATE KEY", SERVER_KEY)),
        ("env:RUBBISH", b"s3cret".to_vec()),
    ];
    FixedSecrets(all.map(|(reference, text)| (reference.to_owned(), text)).into())
}

/// Serves as `service.test` with these HTTP versions, and optionally requires a client certificate.
async fn server(versions: &[&[u8]], asks: bool) -> Server {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = if asks {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(CLIENT)).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(SERVER_KEY));
    let mut config = builder.with_single_cert(vec![CertificateDer::from(SERVER)], key).unwrap();
    config.alpn_protocols = versions.iter().map(|version| version.to_vec()).collect();
    Server::start(Some(config), |_| Box::pin(async { reply(200, &[("grpc-status", "14")], "7") })).await
}

fn remote_tls(wire: WireFormat, server: &Server, tls: Value) -> RemoteActivity {
    let base = format!("https://service.test:{}", server.address.port());
    let with_tls = Value::Object([("tls".to_owned(), tls)].into_iter().collect());
    RemoteActivity::new(declared(wire, &base, with_tls), &outbound_with(secrets())).unwrap()
}

fn ca() -> Value {
    json!({"ca": {"secretRef": "env:CA"}})
}

#[tokio::test]
async fn both_sides_agree_on_the_best_version_they_have() {
    let (h2, h1): (&[u8], &[u8]) = (b"h2", b"http/1.1");
    for (versions, expected) in [
        (vec![h2, h1], Version::HTTP_2),
        (vec![h2], Version::HTTP_2),
        (vec![h1], Version::HTTP_11),
        (vec![], Version::HTTP_11),
    ] {
        let server = server(&versions, false).await;
        let remote = remote_tls(WireFormat::Rest, &server, ca());
        for _ in 0..5 {
            assert_eq!(run_attempt(&remote, json!(1)).await, Ok(json!(7)));
        }
        assert!(server.requests().iter().all(|sent| sent.version == expected), "{versions:?}");
        assert_eq!(server.connections(), 1, "{versions:?}");
    }
}

#[tokio::test]
async fn many_first_calls_at_once_negotiate_the_version_together() {
    for versions in [vec![b"h2".as_slice()], vec![b"http/1.1"]] {
        let server = server(&versions, false).await;
        let remote = remote_tls(WireFormat::Rest, &server, ca());
        let remote = Arc::new(remote);
        let mut calls = JoinSet::new();
        for _ in 0..20 {
            let remote = Arc::clone(&remote);
            calls.spawn(async move { run_attempt(&remote, json!(1)).await });
        }
        while let Some(result) = calls.join_next().await {
            assert_eq!(result.unwrap(), Ok(json!(7)), "{versions:?}");
        }
        let most = if versions[0] == b"h2" { 1 } else { 20 };
        assert!(server.connections() <= most, "{versions:?}: {}", server.connections());
    }
}

#[tokio::test]
async fn grpc_needs_http2() {
    let able = server(&[b"h2"], false).await;
    assert_eq!(
        failure_summary(&run_attempt(&remote_tls(WireFormat::Grpc, &able, ca()), json!(1)).await),
        unknown("UNAVAILABLE")
    );
    assert_eq!(able.requests()[0].version, Version::HTTP_2);
    for versions in [vec![b"http/1.1".as_slice()], vec![]] {
        let unable = server(&versions, false).await;
        let result = run_attempt(&remote_tls(WireFormat::Grpc, &unable, ca()), json!(1)).await;
        assert_eq!(failure_summary(&result), unsent("ConnectFailed"), "{versions:?}");
        assert!(unable.requests().is_empty());
    }
}

#[tokio::test]
async fn nothing_is_sent_to_an_untrusted_server() {
    let server = server(&[b"h2", b"http/1.1"], false).await;
    for tls in [json!({}), json!({"ca": {"secretRef": "env:OTHER_CA"}})] {
        for wire in WireFormat::ALL {
            let result = run_attempt(&remote_tls(wire, &server, tls.clone()), json!(1)).await;
            assert_eq!(failure_summary(&result), unsent("ConnectFailed"), "{tls} {wire:?}");
        }
    }
    let another_name = format!("https://other.test:{}", server.address.port());
    let declared = declared(WireFormat::Rest, &another_name, json!({"tls": ca()}));
    let remote = RemoteActivity::new(declared, &outbound_with(secrets())).unwrap();
    assert_eq!(failure_summary(&run_attempt(&remote, json!(1)).await), unsent("ConnectFailed"));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_certificate_is_presented_to_a_server_that_asks() {
    let server = server(&[b"h2", b"http/1.1"], true).await;
    let mut tls = ca();
    tls["certificate"] = json!({"secretRef": "env:CERTIFICATE"});
    tls["key"] = json!({"secretRef": "env:KEY"});
    assert_eq!(
        run_attempt(&remote_tls(WireFormat::Rest, &server, tls.clone()), json!(1)).await,
        Ok(json!(7))
    );
    assert_eq!(
        failure_summary(&run_attempt(&remote_tls(WireFormat::Grpc, &server, tls), json!(1)).await),
        unknown("UNAVAILABLE")
    );
    let requests = server.requests().len();
    for wire in WireFormat::ALL {
        let result = run_attempt(&remote_tls(wire, &server, ca()), json!(1)).await;
        assert!(
            result.is_err_and(|failure| failure.retryable),
            "{wire:?}: there is no certificate to present"
        );
    }
    assert_eq!(server.requests().len(), requests);
}

#[tokio::test]
async fn an_unusable_certificate_is_an_error_and_nothing_is_sent() {
    let server = server(&[b"http/1.1"], false).await;
    let reference = |name: &str| json!({"secretRef": format!("env:{name}")});
    for tls in [
        json!({"ca": reference("MISSING")}),
        json!({"ca": reference("RUBBISH")}),
        json!({"ca": reference("KEY")}),
        json!({"certificate": reference("CERTIFICATE"), "key": reference("RUBBISH")}),
        json!({"certificate": reference("CERTIFICATE"), "key": reference("OTHER_KEY")}),
        json!({"certificate": reference("RUBBISH"), "key": reference("KEY")}),
    ] {
        let result = run_attempt(&remote_tls(WireFormat::Rest, &server, tls.clone()), json!(1)).await;
        assert_eq!(failure_summary(&result), permanent("SecretUnavailable"), "{tls}");
        assert!(!result.unwrap_err().message.contains("s3cret"));
    }
    assert_eq!(server.connections(), 0);
}

/// Like [`FixedSecrets`], except that the first request hangs or panics.
struct HangingSecrets {
    requested: AtomicBool,
    panics: bool,
}

impl Secrets for HangingSecrets {
    fn reveal<'s>(&'s self, reference: &'s SecretRef) -> SecretFuture<'s> {
        if self.requested.swap(true, Ordering::SeqCst) {
            return Box::pin(async { secrets().reveal(reference).await });
        }
        assert!(!self.panics, "planted panic");
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn an_origin_is_dialled_again_after_a_hanging_secret_or_a_panic() {
    for panics in [false, true] {
        let server = server(&[b"h2"], false).await;
        let base = format!("https://service.test:{}", server.address.port());
        let hanging = Arc::new(HangingSecrets { requested: AtomicBool::new(false), panics });
        let outbound =
            Outbound::with_connector(Connector::new(guard()), hanging, BreakerConfig::default()).unwrap();
        let remote =
            RemoteActivity::new(declared(WireFormat::Rest, &base, json!({"tls": ca()})), &outbound).unwrap();
        tokio::time::pause();
        let first = run_attempt(&remote, json!(1)).await;
        assert!(
            first.as_ref().is_err_and(|failure| failure.retryable && !failure.outcome_unknown),
            "{first:?}"
        );
        tokio::time::sleep(Duration::from_secs(60)).await;
        tokio::time::resume();
        assert_eq!(run_attempt(&remote, json!(1)).await, Ok(json!(7)), "panics: {panics}");
    }
}
