//! Nobody is led to an address that is denied, by no URL, no name, no redirect and over no wire: connections are counted where they are made.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::net::TcpStream;

use super::parts::*;
use super::server::{Server, reply};
use crate::guard::{Guard, GuardConfig, Resolver, Resolving};
use crate::http::{Client, Connector, Dial, Dialling, Offer, TlsRoots};
use crate::remote::{BreakerConfig, Outbound, Remote, RemoteDeclaration, Wire};

const CORPUS: &str = include_str!("ssrf.txt");
const PUBLIC: [u8; 4] = [93, 184, 216, 34];

/// Keeps every address that is dialled, and connects to none; or always to the same server, wherever that is.
#[derive(Clone, Default)]
struct Counted {
    dialled: Arc<Mutex<Vec<SocketAddr>>>,
    leads_to: Option<SocketAddr>,
}

impl Dial for Counted {
    fn dial(&self, address: SocketAddr) -> Dialling<'_> {
        self.dialled.lock().unwrap().push(address);
        Box::pin(async {
            match self.leads_to {
                Some(server) => TcpStream::connect(server).await,
                None => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
            }
        })
    }
}

impl Counted {
    fn take(&self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.dialled.lock().unwrap())
    }
}

/// Names as an attacker would have them.
struct Names;

impl Resolver for Names {
    fn resolve<'r>(&'r self, host: &'r str) -> Resolving<'r> {
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

/// What becomes of each URL, as the corpus says.
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

/// What became of a URL over some wire.
async fn outcome(wire: Wire, url: &str, outbound: &Outbound) -> String {
    let declared = json!({"name": "a", "category": "other", "transport": wire.as_str(), "endpoint": url});
    let remote = RemoteDeclaration::read(&declared).and_then(|declared| Remote::new(declared, outbound));
    let Ok(remote) = remote else { return "denied".to_owned() };
    match deliver(&remote, json!(1)).await {
        Err(failure) if failure.code == "AddressDenied" && !failure.retryable => "denied".to_owned(),
        Err(failure) if failure.code == "ConnectFailed" && !failure.outcome_unknown => {
            "unreachable".to_owned()
        }
        answer => format!("{answer:?}"),
    }
}

/// Somebody who listens at the loopback addresses, to be connected to by nobody.
struct Bait(Vec<TcpListener>);

impl Bait {
    fn new() -> (Self, u16) {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        // Where there is no IPv6 there is nobody to be led to.
        let listeners: Vec<TcpListener> =
            [Some(first), TcpListener::bind(("::1", port)).ok()].into_iter().flatten().collect();
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
        }
        (Self(listeners), port)
    }

    /// The system completes a connection before the one who connects is told, so one would be waiting here.
    fn was_taken(&self) -> bool {
        self.0.iter().any(|listener| listener.accept().is_ok())
    }
}

fn guard_of(resolver: impl Resolver) -> Guard {
    Guard::with_resolver(GuardConfig::default(), resolver)
}

fn outbound_by(connector: Connector) -> Outbound {
    // A circuit that opens would hide what the guard lets through.
    let breaker = BreakerConfig { troubles: u32::MAX, ..BreakerConfig::default() };
    Outbound::with(connector, Arc::new(Known::default()), breaker).unwrap()
}

#[test]
fn the_corpus_is_large_and_says_everything_once() {
    let all = corpus(8_080);
    let urls: BTreeSet<&String> = all.iter().map(|(_, url)| url).collect();
    assert_eq!(urls.len(), all.len());
    assert!(all.len() >= 300, "{}", all.len());
    let public = all.iter().filter(|(expected, _)| expected.parse::<IpAddr>().is_ok()).count();
    assert!(public >= 15, "{public}");
}

#[tokio::test]
async fn no_url_leads_to_a_denied_address_over_any_wire() {
    let counted = Counted::default();
    let outbound = outbound_by(Connector::with_dial(guard_of(Names), counted.clone()));
    for wire in Wire::ALL {
        for (expected, url) in corpus(8_080) {
            // The server of a gRPC activity has no query; such a declaration is refused before anybody is asked.
            let is_no_server = wire == Wire::Grpc && url.contains('?');
            let became = outcome(wire, &url, &outbound).await;
            let dialled: Vec<IpAddr> = counted.take().iter().map(SocketAddr::ip).collect();
            match expected {
                "denied" => assert_eq!((became.as_str(), dialled), ("denied", vec![]), "{wire:?} {url:?}"),
                "unresolved" => {
                    assert_eq!((became.as_str(), dialled), ("unreachable", vec![]), "{wire:?} {url:?}")
                }
                _ if is_no_server => assert_eq!((became.as_str(), dialled), ("denied", vec![]), "{url:?}"),
                address => {
                    let address: IpAddr = address.parse().unwrap();
                    assert_eq!(
                        (became.as_str(), dialled),
                        ("unreachable", vec![address]),
                        "{wire:?} {url:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn the_built_in_activity_takes_the_same_way_out() {
    let counted = Counted::default();
    let connector = Connector::with_dial(guard_of(Names), counted.clone());
    let client = Client::over(connector, TlsRoots::of_tests().connector(Offer::Http1, None).unwrap());
    for (expected, url) in corpus(8_080) {
        let became = match client.target(&url) {
            Err(failure) => failure.code,
            Ok(target) => client.connect(target).await.map(drop).unwrap_err().code,
        };
        let dialled: Vec<String> = counted.take().iter().map(|address| address.ip().to_string()).collect();
        match expected {
            "denied" => assert_eq!((became.as_str(), dialled), ("AddressDenied", vec![]), "{url:?}"),
            "unresolved" => assert_eq!((became.as_str(), dialled), ("ConnectFailed", vec![]), "{url:?}"),
            address => {
                assert_eq!((became.as_str(), dialled), ("ConnectFailed", vec![address.to_owned()]), "{url:?}")
            }
        }
    }
}

#[tokio::test]
async fn nobody_who_listens_is_connected_to() {
    let (bait, port) = Bait::new();
    // The system dials: only what is denied may be tried, or somebody out there would be called.
    let outbound = outbound_by(Connector::new(guard_of(Names)));
    for wire in Wire::ALL {
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
    let (bait, port) = Bait::new();
    for (_, url) in corpus(port) {
        // What no header can carry no server can send.
        let Ok(location) = hyper::header::HeaderValue::from_bytes(url.as_bytes()) else { continue };
        let server = Server::answering(move |_| {
            let mut response = reply(302, &[], "");
            response.headers_mut().insert("location", location.clone());
            response
        })
        .await;
        let counted = Counted { leads_to: Some(server.address), ..Counted::default() };
        let outbound = outbound_by(Connector::with_dial(guard_of(Names), counted.clone()));
        for wire in Wire::ALL {
            let became = outcome(wire, "http://public.test/", &outbound).await;
            assert!(became.contains("RedirectRefused"), "{wire:?} {url:?}: {became}");
        }
        assert!(counted.take().iter().all(|address| address.ip() == IpAddr::from(PUBLIC)), "{url:?}");
    }
    assert!(!bait.was_taken());
}

/// A name that is public when it is looked at first, and anything else ever after.
#[derive(Clone)]
struct Rebinding {
    asked: Arc<AtomicUsize>,
    then: &'static str,
}

impl Resolver for Rebinding {
    fn resolve<'r>(&'r self, _: &'r str) -> Resolving<'r> {
        let is_first = self.asked.fetch_add(1, Ordering::SeqCst) == 0;
        let address = if is_first { IpAddr::from(PUBLIC) } else { self.then.parse().unwrap() };
        Box::pin(async move { Ok(vec![address]) })
    }
}

#[tokio::test]
async fn a_name_that_changes_its_address_gains_nothing() {
    for then in ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1"] {
        for wire in Wire::ALL {
            let (counted, asked) = (Counted::default(), Arc::new(AtomicUsize::new(0)));
            let guard = guard_of(Rebinding { asked: Arc::clone(&asked), then });
            let outbound = outbound_by(Connector::with_dial(guard, counted.clone()));
            let became = outcome(wire, "http://rebinding.test/", &outbound).await;
            let dialled: Vec<IpAddr> = counted.take().iter().map(SocketAddr::ip).collect();
            assert_eq!((became.as_str(), dialled), ("unreachable", vec![IpAddr::from(PUBLIC)]), "{wire:?}");
            assert_eq!(asked.load(Ordering::SeqCst), 1, "what was checked is what was dialled");
            for _ in 0..3 {
                let became = outcome(wire, "http://rebinding.test/", &outbound).await;
                assert_eq!((became.as_str(), counted.take()), ("denied", vec![]), "{wire:?} {then}");
            }
        }
    }
}

#[tokio::test]
async fn a_connection_that_is_kept_goes_on_to_the_address_that_was_checked() {
    for wire in Wire::ALL {
        let server = Server::always(404, "").await;
        let counted = Counted { leads_to: Some(server.address), ..Counted::default() };
        let asked = Arc::new(AtomicUsize::new(0));
        let guard = guard_of(Rebinding { asked: Arc::clone(&asked), then: "127.0.0.1" });
        let outbound = outbound_by(Connector::with_dial(guard, counted.clone()));
        let remote = Remote::new(declared(wire, "http://rebinding.test", json!({})), &outbound).unwrap();
        for _ in 0..5 {
            assert_eq!(told(&deliver(&remote, json!(1)).await), last("Http404"), "{wire:?}");
        }
        assert_eq!((counted.take().len(), asked.load(Ordering::SeqCst)), (1, 1), "{wire:?}");
        server.stop().await;
        // The connection is gone, so the name is looked at again.
        let answer = deliver(&remote, json!(1)).await;
        assert_eq!((told(&answer), counted.take()), (last("AddressDenied"), vec![]), "{wire:?}");
    }
}
