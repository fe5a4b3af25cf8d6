//! What the tests are made of: a way out to the loopback address, declarations and calls.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::guard::{Guard, GuardConfig, Resolver, Resolving};
use crate::http::Connector;
use crate::metadata::tests::metadata;
use crate::remote::secrets::{Revealing, Secret, SecretError};
use crate::remote::{
    BreakerConfig, Outbound, Remote, RemoteDeclaration, SecretRef, Secrets, TargetConfig, TargetLimits, Wire,
};
use crate::transport::{Answer, Call, Failure};

/// Every name is the loopback address.
pub(super) struct Loopback;

impl Resolver for Loopback {
    fn resolve<'r>(&'r self, _: &'r str) -> Resolving<'r> {
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    }
}

/// Secrets by the text of their reference.
#[derive(Default)]
pub(super) struct Known(pub(super) BTreeMap<String, Vec<u8>>);

impl Secrets for Known {
    fn reveal<'s>(&'s self, reference: &'s SecretRef) -> Revealing<'s> {
        let found = self.0.get(&reference.to_string()).map(|bytes| Secret::new(bytes.as_slice()));
        let missing = SecretError::NotSet { reference: reference.clone() };
        Box::pin(async move { found.ok_or(missing) })
    }
}

pub(super) fn guard() -> Guard {
    let allow = vec!["127.0.0.1".parse().unwrap()];
    Guard::with_resolver(GuardConfig { allow, ..GuardConfig::default() }, Loopback)
}

pub(super) fn outbound() -> Outbound {
    outbound_with(Known::default())
}

pub(super) fn outbound_with(secrets: Known) -> Outbound {
    Outbound::with(Connector::new(guard()), Arc::new(secrets), BreakerConfig::default()).unwrap()
}

/// A way out to targets that take no more than this.
pub(super) fn outbound_limited(concurrency: Option<u32>, rate_per_second: Option<f64>) -> Outbound {
    let limits = TargetLimits::new(concurrency, rate_per_second).unwrap();
    let targets = TargetConfig { limits, ..TargetConfig::default() };
    Outbound::with(Connector::new(guard()), Arc::new(Known::default()), targets).unwrap()
}

/// Where a wire finds its activity on a server.
pub(super) fn endpoint(wire: Wire, base: &str) -> String {
    if wire == Wire::Grpc { base.to_owned() } else { format!("{base}/activities/charge") }
}

pub(super) fn http(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// A declaration over this wire at this server, with more fields.
pub(super) fn declared(wire: Wire, base: &str, more: Value) -> RemoteDeclaration {
    let mut declared = json!({
        "name": "charge", "category": "other", "transport": wire.as_str(), "endpoint": endpoint(wire, base),
    });
    let Value::Object(more) = more else { panic!("{more}") };
    declared.as_object_mut().unwrap().extend(more);
    RemoteDeclaration::read(&declared).unwrap()
}

pub(super) fn remote(wire: Wire, address: SocketAddr) -> Remote {
    remote_with(wire, address, json!({}))
}

pub(super) fn remote_with(wire: Wire, address: SocketAddr, more: Value) -> Remote {
    Remote::new(declared(wire, &http(address), more), &outbound()).unwrap()
}

pub(super) fn call(input: Value) -> Call {
    let (activity, input) = ("charge".to_owned(), Arc::new(input));
    Call {
        activity,
        input,
        metadata: metadata(),
        attempt_timeout_ms: 8_000,
        ask_first: false,
        secrets: Vec::new(),
        waited: std::time::Duration::ZERO,
    }
}

pub(super) async fn deliver(remote: &Remote, input: Value) -> Result<Value, Failure> {
    result(remote.deliver(call(input)).await)
}

pub(super) fn result(answer: Answer) -> Result<Value, Failure> {
    match answer {
        Answer::Completed(output) => Ok((*output).clone()),
        Answer::Failed(failure) => Err(failure),
    }
}

/// Code, whether it may be tried again, and whether nobody knows what happened.
pub(super) fn told(answer: &Result<Value, Failure>) -> (&str, bool, bool) {
    let failure = answer.as_ref().unwrap_err();
    (failure.code.as_str(), failure.retryable, failure.outcome_unknown)
}

/// Not sent, and another delivery may help.
pub(super) const fn unsent(code: &str) -> (&str, bool, bool) {
    (code, true, false)
}

/// Sent, and nobody knows.
pub(super) const fn unknown(code: &str) -> (&str, bool, bool) {
    (code, true, true)
}

/// Another delivery does not help.
pub(super) const fn last(code: &str) -> (&str, bool, bool) {
    (code, false, false)
}
