//! TLS: whom to believe, what to show, and which version of HTTP both sides agree on.

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

use super::parts::*;
use super::server::{Server, reply};
use crate::http::Connector;
use crate::remote::secrets::Revealing;
use crate::remote::{BreakerConfig, Outbound, Remote, SecretRef, Secrets, Wire};

const SERVER: &[u8] = include_bytes!("../../http/testdata/service.test.der");
const SERVER_KEY: &[u8] = include_bytes!("../../http/testdata/service.test.key.der");
const CLIENT: &[u8] = include_bytes!("../../http/testdata/client.test.der");
const CLIENT_KEY: &[u8] = include_bytes!("../../http/testdata/client.test.key.der");

fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der)).into_bytes()
}

fn secrets() -> Known {
    let all = [
        ("env:CA", pem("CERTIFICATE", SERVER)),
        ("env:OTHER_CA", pem("CERTIFICATE", CLIENT)),
        ("env:CERTIFICATE", pem("CERTIFICATE", CLIENT)),
        ("env:KEY", pem("PRIVATE KEY", CLIENT_KEY)),
        ("env:OTHER_KEY", pem("PRIVATE KEY", SERVER_KEY)),
        ("env:RUBBISH", b"s3cret".to_vec()),
    ];
    Known(all.map(|(reference, text)| (reference.to_owned(), text)).into())
}

/// Serves as `service.test`, speaking these versions, and asks for a certificate or not.
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

fn remote_tls(wire: Wire, server: &Server, tls: Value) -> Remote {
    let base = format!("https://service.test:{}", server.address.port());
    let with_tls = Value::Object([("tls".to_owned(), tls)].into_iter().collect());
    Remote::new(declared(wire, &base, with_tls), &outbound_with(secrets())).unwrap()
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
        let remote = remote_tls(Wire::Rest, &server, ca());
        for _ in 0..5 {
            assert_eq!(deliver(&remote, json!(1)).await, Ok(json!(7)));
        }
        assert!(server.requests().iter().all(|sent| sent.version == expected), "{versions:?}");
        assert_eq!(server.connections(), 1, "{versions:?}");
    }
}

#[tokio::test]
async fn many_first_calls_at_once_find_out_together() {
    for versions in [vec![b"h2".as_slice()], vec![b"http/1.1"]] {
        let server = server(&versions, false).await;
        let remote = remote_tls(Wire::Rest, &server, ca());
        let (remote, mut calls) = (Arc::new(remote), JoinSet::new());
        for _ in 0..20 {
            let remote = Arc::clone(&remote);
            calls.spawn(async move { deliver(&remote, json!(1)).await });
        }
        while let Some(answer) = calls.join_next().await {
            assert_eq!(answer.unwrap(), Ok(json!(7)), "{versions:?}");
        }
        let most = if versions[0] == b"h2" { 1 } else { 20 };
        assert!(server.connections() <= most, "{versions:?}: {}", server.connections());
    }
}

#[tokio::test]
async fn grpc_needs_http2() {
    let able = server(&[b"h2"], false).await;
    assert_eq!(told(&deliver(&remote_tls(Wire::Grpc, &able, ca()), json!(1)).await), unknown("UNAVAILABLE"));
    assert_eq!(able.requests()[0].version, Version::HTTP_2);
    for versions in [vec![b"http/1.1".as_slice()], vec![]] {
        let unable = server(&versions, false).await;
        let answer = deliver(&remote_tls(Wire::Grpc, &unable, ca()), json!(1)).await;
        assert_eq!(told(&answer), unsent("ConnectFailed"), "{versions:?}");
        assert!(unable.requests().is_empty());
    }
}

#[tokio::test]
async fn nothing_is_sent_to_whom_nobody_vouches_for() {
    let server = server(&[b"h2", b"http/1.1"], false).await;
    for tls in [json!({}), json!({"ca": {"secretRef": "env:OTHER_CA"}})] {
        for wire in Wire::ALL {
            let answer = deliver(&remote_tls(wire, &server, tls.clone()), json!(1)).await;
            assert_eq!(told(&answer), unsent("ConnectFailed"), "{tls} {wire:?}");
        }
    }
    let another_name = format!("https://other.test:{}", server.address.port());
    let declared = declared(Wire::Rest, &another_name, json!({"tls": ca()}));
    let remote = Remote::new(declared, &outbound_with(secrets())).unwrap();
    assert_eq!(told(&deliver(&remote, json!(1)).await), unsent("ConnectFailed"));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_certificate_is_shown_to_a_server_that_asks() {
    let server = server(&[b"h2", b"http/1.1"], true).await;
    let mut shown = ca();
    shown["certificate"] = json!({"secretRef": "env:CERTIFICATE"});
    shown["key"] = json!({"secretRef": "env:KEY"});
    assert_eq!(deliver(&remote_tls(Wire::Rest, &server, shown.clone()), json!(1)).await, Ok(json!(7)));
    assert_eq!(
        told(&deliver(&remote_tls(Wire::Grpc, &server, shown), json!(1)).await),
        unknown("UNAVAILABLE")
    );
    let requests = server.requests().len();
    for wire in Wire::ALL {
        let answer = deliver(&remote_tls(wire, &server, ca()), json!(1)).await;
        assert!(answer.is_err_and(|failure| failure.retryable), "{wire:?}: there is nothing to show");
    }
    assert_eq!(server.requests().len(), requests);
}

#[tokio::test]
async fn what_cannot_be_used_is_told_and_nothing_is_sent() {
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
        let answer = deliver(&remote_tls(Wire::Rest, &server, tls.clone()), json!(1)).await;
        assert_eq!(told(&answer), last("SecretUnavailable"), "{tls}");
        assert!(!answer.unwrap_err().message.contains("s3cret"));
    }
    assert_eq!(server.connections(), 0);
}

/// As [`Known`], except that the first to ask gets no answer.
struct Stuck {
    asked: AtomicBool,
    panics: bool,
}

impl Secrets for Stuck {
    fn reveal<'s>(&'s self, reference: &'s SecretRef) -> Revealing<'s> {
        if self.asked.swap(true, Ordering::SeqCst) {
            return Box::pin(async { secrets().reveal(reference).await });
        }
        assert!(!self.panics, "as asked");
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn an_origin_whose_secret_hung_or_whose_dialling_panicked_is_dialled_again() {
    for panics in [false, true] {
        let server = server(&[b"h2"], false).await;
        let base = format!("https://service.test:{}", server.address.port());
        let stuck = Arc::new(Stuck { asked: AtomicBool::new(false), panics });
        let outbound = Outbound::with(Connector::new(guard()), stuck, BreakerConfig::default()).unwrap();
        let remote = Remote::new(declared(Wire::Rest, &base, json!({"tls": ca()})), &outbound).unwrap();
        tokio::time::pause();
        let first = deliver(&remote, json!(1)).await;
        assert!(
            first.as_ref().is_err_and(|failure| failure.retryable && !failure.outcome_unknown),
            "{first:?}"
        );
        tokio::time::sleep(Duration::from_secs(60)).await;
        tokio::time::resume();
        assert_eq!(deliver(&remote, json!(1)).await, Ok(json!(7)), "panics: {panics}");
    }
}
