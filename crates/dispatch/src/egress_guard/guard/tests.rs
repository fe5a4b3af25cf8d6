//! The decisions of the guard: a table of disguised addresses, and names whose addresses change.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::resolve::ResolveFuture;
use super::*;

/// A name server that gives one answer after the other, and then repeats the last one.
struct ScriptedResolver {
    answers: Vec<Vec<&'static str>>,
    lookups: Arc<AtomicUsize>,
}

impl Resolver for ScriptedResolver {
    fn resolve<'r>(&'r self, _host: &'r str) -> ResolveFuture<'r> {
        let lookups = self.lookups.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers.get(lookups).or(self.answers.last()).cloned().unwrap_or_default();
        Box::pin(async move { Ok(answer.iter().map(|address| address.parse().unwrap()).collect()) })
    }
}

fn guard(allow: &[&str], answers: &[&[&'static str]]) -> (EgressGuard, Arc<AtomicUsize>) {
    let allow = allow.iter().map(|entry| entry.parse().unwrap()).collect();
    let lookups = Arc::new(AtomicUsize::new(0));
    let answers = answers.iter().map(|answer| answer.to_vec()).collect();
    let resolver = ScriptedResolver { answers, lookups: lookups.clone() };
    (
        EgressGuard::with_resolver(EgressGuardConfig { allow, ..EgressGuardConfig::default() }, resolver),
        lookups,
    )
}

async fn admitted(guard: &EgressGuard, url: &str) -> Result<Vec<SocketAddr>, AdmitError> {
    guard.admit(&guard.check_url(url)?).await
}

#[test]
fn a_denied_address_is_denied_in_every_disguise() {
    let guard = EgressGuard::default();
    for url in [
        // Loopback, in every spelling.
        "http://127.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://127.0.0.1./",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7F.0x0.0x0.0x1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://0x7f.1/",
        "http://127%2e0%2e0%2e1/",
        "http://%31%32%37.0.0.1/",
        "http://①②⑦.⓪.⓪.①/",
        "http://127。0。0。1/",
        "http://１２７.0.0.1/",
        "http:127.0.0.1/",
        "http:/127.0.0.1/",
        "http:////127.0.0.1/",
        "HTTPS://127.255.255.254:8443/",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[2002:7f00:1::]/",
        // This host.
        "http://0/",
        "http://0.0.0.0/",
        "http://0.1.2.3/",
        "http://[::]/",
        "http://[::ffff:0.0.0.0]/",
        // Metadata services.
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://0251.0376.0251.0376/",
        "http://169.254.43518/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[64:ff9b:1::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[fd00:ec2::254]/",
        "http://[FD00:0EC2::0254]/",
        "http://168.63.129.16/",
        "http://100.100.100.200/",
        "http://192.0.0.192/",
        // Private networks.
        "http://10.0.0.1/",
        "http://10.255.255.255/",
        "http://167772161/",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.168.0.1/",
        "http://192.168.257/",
        "http://100.64.0.1/",
        "http://100.127.255.255/",
        "http://[fc00::1]/",
        "http://[fdff::1]/",
        "http://[::ffff:10.0.0.1]/",
        // Reserved ranges.
        "http://[fe80::1]/",
        "http://[febf::1]/",
        "http://[fec0::1]/",
        "http://[ff02::1]/",
        "http://224.0.0.1/",
        "http://239.255.255.255/",
        "http://240.0.0.1/",
        "http://255.255.255.255/",
        "http://198.18.0.1/",
        "http://198.19.255.255/",
        "http://192.0.2.1/",
        "http://198.51.100.7/",
        "http://203.0.113.9/",
        "http://192.88.99.1/",
        "http://[2001:db8::1]/",
        "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
        "http://[3fff::1]/",
        "http://[100::1]/",
    ] {
        assert!(
            matches!(guard.check_url(url), Err(DenyReason::Address { .. })),
            "{url}: {:?}",
            guard.check_url(url)
        );
    }
}

#[test]
fn public_addresses_and_names_may_be_called_at_any_port() {
    let guard = EgressGuard::default();
    for url in [
        "http://1.1.1.1/",
        "https://[2606:4700::1111]:9443/x?y",
        "http://example.com:25/",
        "https://bücher.example/",
    ] {
        assert!(guard.check_url(url).is_ok(), "{url}");
    }
}

#[test]
fn the_configuration_narrows_schemes_ports_and_hosts() {
    let config = EgressGuardConfig {
        schemes: BTreeSet::from([Scheme::Https]),
        ports: Some(BTreeSet::from([443])),
        hosts: Some(["Example.com.", "1.1.1.1", "2606:4700::1111"].map(str::to_owned).into()),
        allow: Vec::new(),
    };
    let guard = EgressGuard::new(config);
    for url in [
        "https://example.com/",
        "https://EXAMPLE.com./",
        "https://1.1.1.1/",
        "https://0x01010101/",
        "https://[2606:4700:0::1111]/",
    ] {
        assert!(guard.check_url(url).is_ok(), "{url}");
    }
    assert_eq!(guard.check_url("http://example.com:443/"), Err(DenyReason::Scheme("http".to_owned())));
    assert_eq!(guard.check_url("https://example.com:8443/"), Err(DenyReason::Port(8443)));
    assert_eq!(
        guard.check_url("https://www.example.com/"),
        Err(DenyReason::Host("www.example.com".to_owned()))
    );
}

#[tokio::test]
async fn one_denied_address_of_a_name_denies_them_all() {
    let (guard, _) = guard(&[], &[&["93.184.215.14", "2606:4700::1111", "127.0.0.1"]]);
    let denied = admitted(&guard, "http://example.com/").await;
    assert!(matches!(denied, Err(AdmitError::Denied(DenyReason::Address { .. }))), "{denied:?}");
}

#[tokio::test]
async fn a_name_is_resolved_once_and_only_checked_addresses_are_returned() {
    let (guard, lookups) = guard(&[], &[&["93.184.215.14"], &["169.254.169.254"]]);
    let addresses = admitted(&guard, "http://rebinding.example:8080/").await.unwrap();
    assert_eq!(addresses, ["93.184.215.14:8080".parse().unwrap()]);
    assert_eq!(lookups.load(Ordering::SeqCst), 1);
    let denied = admitted(&guard, "http://rebinding.example:8080/").await;
    assert!(matches!(denied, Err(AdmitError::Denied(_))), "the next call resolves and checks anew");
}

#[tokio::test]
async fn an_address_is_not_resolved() {
    let (guard, lookups) = guard(&[], &[&["127.0.0.1"]]);
    assert_eq!(admitted(&guard, "http://0x01010101/").await.unwrap(), ["1.1.1.1:80".parse().unwrap()]);
    assert_eq!(lookups.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_listed_network_may_be_called_by_address_and_by_name() {
    let (guard, _) =
        guard(&["127.0.0.0/8", "169.254.169.254"], &[&["127.0.0.1"], &["::ffff:127.0.0.1"], &["10.0.0.1"]]);
    for url in [
        "http://127.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://a.test/",
        "http://b.test/",
        "http://169.254.169.254/",
    ] {
        assert!(admitted(&guard, url).await.is_ok(), "{url}");
    }
    for url in ["http://c.test/", "http://10.0.0.1/", "http://169.254.169.253/"] {
        assert!(admitted(&guard, url).await.is_err(), "{url}");
    }
}

#[tokio::test]
async fn a_listed_host_may_be_private_but_never_a_metadata_service() {
    let (guard, _) =
        guard(&["ledger.internal"], &[&["10.0.0.1"], &["fd00::1"], &["169.254.169.254"], &["10.0.0.1"]]);
    assert!(admitted(&guard, "http://ledger.internal/").await.is_ok());
    assert!(admitted(&guard, "http://LEDGER.internal./").await.is_ok());
    assert!(admitted(&guard, "http://ledger.internal/").await.is_err(), "link-local");
    assert!(admitted(&guard, "http://other.internal/").await.is_err(), "not listed");
    assert!(admitted(&guard, "http://10.0.0.1/").await.is_err(), "the name is listed, the address is not");
}

#[tokio::test]
async fn a_name_without_addresses_is_an_error_of_its_own() {
    let (guard, _) = guard(&[], &[&[]]);
    assert!(matches!(admitted(&guard, "http://nowhere.test/").await, Err(AdmitError::NoAddress { .. })));
}
