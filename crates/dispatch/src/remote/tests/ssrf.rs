//! No URL, name or redirect leads to a denied address over any wire format: connections are counted where they are
//! dialled.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::net::TcpStream;

use super::fixtures::*;
use super::server::{Server, reply};
use crate::egress_guard::{EgressGuard, EgressGuardConfig, ResolveFuture, Resolver};
use crate::http::{AlpnOffer, Connector, DialFuture, Dialer, OneShotClient, TlsRoots};
use crate::remote::{BreakerConfig, Outbound, RemoteActivity, RemoteDeclaration, WireFormat};

const CORPUS: &str = include_str!("ssrf.txt");
const PUBLIC: [u8; 4] = [93, 184, 216, 34];

/// Records every address that is dialled, and connects to none, or always to the same server.
#[derive(Clone, Default)]
struct CountingDialer {
    dialled: Arc<Mutex<Vec<SocketAddr>>>,
    leads_to: Option<SocketAddr>,
}

impl Dialer for CountingDialer {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        self.dialled.lock().unwrap().push(address);
        Box::pin(async {
            match self.leads_to {
                Some(server) => TcpStream::connect(server).await,
                None => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
            }
        })
    }
}

impl CountingDialer {
    fn take(&self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.dialled.lock().unwrap())
    }
}

/// Resolves names as an attacker would.
struct HostileResolver;

impl Resolver for HostileResolver {
    fn resolve<'r>(&'r self, host: &'r str) -> ResolveFuture<'r> {
        let addresses: &[&str] = match host {
            "localhost" | "loopback.test" | "127.0.0.1.nip.test" | "xn--loopback-test.loopback.test" => {
                &["127.0.0.1"]
            }
            "loopback6.test" => &["::1"],
            "private.test" => &["10.0.0.1"],
            "metadata.test" | "metadata.google.internal" | "instance-data" => &["169.254.169.254"],
            "cgnat.test" => &["100.64.0.1"],
            "mapped.test" => &["::ffff:127.0.0.1"],
            "compatible.test" => &["::127.0.0.1"],
            "nat64.test" => &["64:ff9b::127.0.0.1"],
            "sixtofour.test" => &["2002:7f00:1::"],
            "linklocal6.test" => &["fe80::1"],
            "unique.test" => &["fd00::1"],
            "zero.test" => &["0.0.0.0"],
            "mixed.test" => &["93.184.216.34", "127.0.0.1"],
            "mixed6.test" => &["2606:4700::1111", "::1"],
            "lastbad.test" => &["1.1.1.1", "8.8.8.8", "9.9.9.9", "1.0.0.1", "169.254.169.254"],
            "public.test" => &["93.184.216.34"],
            "public6.test" => &["2606:4700::1111"],
            _ => &[],
        };
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let unknown = io::Error::from(io::ErrorKind::NotFound);
        Box::pin(async { if addresses.is_empty() { Err(unknown) } else { Ok(addresses) } })
    }
}

/// The URLs of the corpus, each with its expected outcome.
fn corpus(port: u16) -> Vec<(&'static str, String)> {
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    let entry = |line: &'static str| {
        let (expected, url) = line.split_once(' ').unwrap();
        let url = url.replace("PORT", &port.to_string());
        match expected {
            "denied!" => {
                let special = [("\\s", " "), ("\\t", "\t"), ("\\n", "\n"), ("\\r", "\r"), ("\\0", "\0")];
                ("denied", special.into_iter().fold(url, |url, (text, is)| url.replace(text, is)))
            }
            _ => (expected, url),
        }
    };
    lines.map(entry).collect()
}

/// The outcome of calling a URL over a wire format.
async fn outcome(wire: WireFormat, url: &str, outbound: &Outbound) -> String {
    let declared = json!({"name": "a", "category": "other", "transport": wire.as_str(), "endpoint": url});
    let remote =
        RemoteDeclaration::read(&declared).and_then(|declared| RemoteActivity::new(declared, outbound));
    let Ok(remote) = remote else { return "denied".to_owned() };
    match run_attempt(&remote, json!(1)).await {
        Err(failure) if failure.code == "AddressDenied" && !failure.retryable => "denied".to_owned(),
        Err(failure) if failure.code == "ConnectFailed" && !failure.outcome_unknown => {
            "unreachable".to_owned()
        }
        other => format!("{other:?}"),
    }
}

/// Listeners on the loopback addresses, which must never be connected to.
struct BaitServers(Vec<TcpListener>);

impl BaitServers {
    fn new() -> (Self, u16) {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        // Without IPv6 there is no second listener.
        let listeners: Vec<TcpListener> =
            [Some(first), TcpListener::bind(("::1", port)).ok()].into_iter().flatten().collect();
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
        }
        (Self(listeners), port)
    }

    /// The system completes a connection before the client is notified, so one would be waiting here.
    fn was_taken(&self) -> bool {
        self.0.iter().any(|listener| listener.accept().is_ok())
    }
}

fn guard_of(resolver: impl Resolver) -> EgressGuard {
    EgressGuard::with_resolver(EgressGuardConfig::default(), resolver)
}

fn outbound_by(connector: Connector) -> Outbound {
    // An open circuit would hide what the guard admits.
    let breaker = BreakerConfig { failure_threshold: u32::MAX, ..BreakerConfig::default() };
    Outbound::with_connector(connector, Arc::new(FixedSecrets::default()), breaker).unwrap()
}

#[test]
fn the_corpus_is_large_and_has_no_duplicates() {
    let all = corpus(8_080);
    let urls: BTreeSet<&String> = all.iter().map(|(_, url)| url).collect();
    assert_eq!(urls.len(), all.len());
    assert!(all.len() >= 300, "{}", all.len());
    let public = all.iter().filter(|(expected, _)| expected.parse::<IpAddr>().is_ok()).count();
    assert!(public >= 15, "{public}");
}

#[tokio::test]
async fn no_url_leads_to_a_denied_address_over_any_wire() {
    let counted = CountingDialer::default();
    let outbound = outbound_by(Connector::with_dialer(guard_of(HostileResolver), counted.clone()));
    for wire in WireFormat::ALL {
        for (expected, url) in corpus(8_080) {
            // The URL of a gRPC server has no query; such a declaration is rejected before anything is called.
            let is_invalid_for_grpc = wire == WireFormat::Grpc && url.contains('?');
            let actual = outcome(wire, &url, &outbound).await;
            let dialled: Vec<IpAddr> = counted.take().iter().map(SocketAddr::ip).collect();
            match expected {
                "denied" => assert_eq!((actual.as_str(), dialled), ("denied", vec![]), "{wire:?} {url:?}"),
                "unresolved" => {
                    assert_eq!((actual.as_str(), dialled), ("unreachable", vec![]), "{wire:?} {url:?}")
                }
                _ if is_invalid_for_grpc => {
                    assert_eq!((actual.as_str(), dialled), ("denied", vec![]), "{url:?}")
                }
                address => {
                    let address: IpAddr = address.parse().unwrap();
                    assert_eq!(
                        (actual.as_str(), dialled),
                        ("unreachable", vec![address]),
                        "{wire:?} {url:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn the_built_in_activity_passes_the_same_guard() {
    let counted = CountingDialer::default();
    let connector = Connector::with_dialer(guard_of(HostileResolver), counted.clone());
    let client = OneShotClient::with_connector(
        connector,
        TlsRoots::for_test_server().connector(AlpnOffer::Http1, None).unwrap(),
    );
    for (expected, url) in corpus(8_080) {
        let actual = match client.check_url(&url) {
            Err(failure) => failure.code,
            Ok(target) => client.connect(target).await.map(drop).unwrap_err().code,
        };
        let dialled: Vec<String> = counted.take().iter().map(|address| address.ip().to_string()).collect();
        match expected {
            "denied" => assert_eq!((actual.as_str(), dialled), ("AddressDenied", vec![]), "{url:?}"),
            "unresolved" => assert_eq!((actual.as_str(), dialled), ("ConnectFailed", vec![]), "{url:?}"),
            address => {
                assert_eq!((actual.as_str(), dialled), ("ConnectFailed", vec![address.to_owned()]), "{url:?}")
            }
        }
    }
}

#[tokio::test]
async fn no_denied_url_reaches_a_listener() {
    let (bait, port) = BaitServers::new();
    // The system really dials, so only denied URLs are tried: others would call real hosts.
    let outbound = outbound_by(Connector::new(guard_of(HostileResolver)));
    for wire in WireFormat::ALL {
        for (_, url) in corpus(port).into_iter().filter(|(expected, _)| *expected == "denied") {
            assert_eq!(outcome(wire, &url, &outbound).await, "denied", "{wire:?} {url:?}");
            assert!(!bait.was_taken(), "{wire:?} {url:?}");
        }
    }
    TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    assert!(bait.was_taken(), "the bait works");
}

#[tokio::test]
async fn no_redirect_leads_to_a_denied_address() {
    let (bait, port) = BaitServers::new();
    for (_, url) in corpus(port) {
        // A server cannot send a URL that is not a valid header value.
        let Ok(location) = hyper::header::HeaderValue::from_bytes(url.as_bytes()) else { continue };
        let server = Server::answering(move |_| {
            let mut response = reply(302, &[], "");
            response.headers_mut().insert("location", location.clone());
            response
        })
        .await;
        let counted = CountingDialer { leads_to: Some(server.address), ..CountingDialer::default() };
        let outbound = outbound_by(Connector::with_dialer(guard_of(HostileResolver), counted.clone()));
        for wire in WireFormat::ALL {
            let actual = outcome(wire, "http://public.test/", &outbound).await;
            assert!(actual.contains("RedirectRefused"), "{wire:?} {url:?}: {actual}");
        }
        assert!(counted.take().iter().all(|address| address.ip() == IpAddr::from(PUBLIC)), "{url:?}");
    }
    assert!(!bait.was_taken());
}

/// Resolves a name to a public address the first time, and to another address ever after.
#[derive(Clone)]
struct RebindingResolver {
    lookups: Arc<AtomicUsize>,
    then: &'static str,
}

impl Resolver for RebindingResolver {
    fn resolve<'r>(&'r self, _: &'r str) -> ResolveFuture<'r> {
        let is_first = self.lookups.fetch_add(1, Ordering::SeqCst) == 0;
        let address = if is_first { IpAddr::from(PUBLIC) } else { self.then.parse().unwrap() };
        Box::pin(async move { Ok(vec![address]) })
    }
}

#[tokio::test]
async fn changing_the_address_of_a_name_has_no_effect() {
    for then in ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1"] {
        for wire in WireFormat::ALL {
            let counted = CountingDialer::default();
            let lookups = Arc::new(AtomicUsize::new(0));
            let guard = guard_of(RebindingResolver { lookups: Arc::clone(&lookups), then });
            let outbound = outbound_by(Connector::with_dialer(guard, counted.clone()));
            let actual = outcome(wire, "http://rebinding.test/", &outbound).await;
            let dialled: Vec<IpAddr> = counted.take().iter().map(SocketAddr::ip).collect();
            assert_eq!((actual.as_str(), dialled), ("unreachable", vec![IpAddr::from(PUBLIC)]), "{wire:?}");
            assert_eq!(lookups.load(Ordering::SeqCst), 1, "the checked address is the dialled one");
            for _ in 0..3 {
                let actual = outcome(wire, "http://rebinding.test/", &outbound).await;
                assert_eq!((actual.as_str(), counted.take()), ("denied", vec![]), "{wire:?} {then}");
            }
        }
    }
}

#[tokio::test]
async fn a_reused_connection_stays_at_the_address_that_was_checked() {
    for wire in WireFormat::ALL {
        let server = Server::always(404, "").await;
        let counted = CountingDialer { leads_to: Some(server.address), ..CountingDialer::default() };
        let lookups = Arc::new(AtomicUsize::new(0));
        let guard = guard_of(RebindingResolver { lookups: Arc::clone(&lookups), then: "127.0.0.1" });
        let outbound = outbound_by(Connector::with_dialer(guard, counted.clone()));
        let remote =
            RemoteActivity::new(declared(wire, "http://rebinding.test", json!({})), &outbound).unwrap();
        for _ in 0..5 {
            assert_eq!(
                failure_summary(&run_attempt(&remote, json!(1)).await),
                permanent("Http404"),
                "{wire:?}"
            );
        }
        assert_eq!((counted.take().len(), lookups.load(Ordering::SeqCst)), (1, 1), "{wire:?}");
        server.stop().await;
        // The connection is closed, so the name is resolved again.
        let result = run_attempt(&remote, json!(1)).await;
        assert_eq!(
            (failure_summary(&result), counted.take()),
            (permanent("AddressDenied"), vec![]),
            "{wire:?}"
        );
    }
}
