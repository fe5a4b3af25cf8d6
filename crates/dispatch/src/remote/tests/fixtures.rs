//! Fixtures of the tests: an `Outbound` to the loopback address, declarations and calls.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::egress_guard::{EgressGuard, EgressGuardConfig, ResolveFuture, Resolver};
use crate::http::Connector;
use crate::metadata::tests::metadata;
use crate::remote::secrets::{Secret, SecretError, SecretFuture};
use crate::remote::{
    BreakerConfig, Outbound, RemoteActivity, RemoteDeclaration, SecretRef, Secrets, TargetConfig,
    TargetLimits, WireFormat,
};
use crate::transport::{AttemptResult, CallAttempt, CallFailure};

/// Resolves every name to the loopback address.
pub(super) struct Loopback;

impl Resolver for Loopback {
    fn resolve<'r>(&'r self, _: &'r str) -> ResolveFuture<'r> {
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    }
}

/// Secrets by the text of their reference.
#[derive(Default)]
pub(super) struct FixedSecrets(pub(super) BTreeMap<String, Vec<u8>>);

impl Secrets for FixedSecrets {
    fn reveal<'s>(&'s self, reference: &'s SecretRef) -> SecretFuture<'s> {
        let secret = self.0.get(&reference.to_string()).map(|bytes| Secret::new(bytes.as_slice()));
        let missing = SecretError::NotSet { reference: reference.clone() };
        Box::pin(async move { secret.ok_or(missing) })
    }
}

pub(super) fn guard() -> EgressGuard {
    let allow = vec!["127.0.0.1".parse().unwrap()];
    EgressGuard::with_resolver(EgressGuardConfig { allow, ..EgressGuardConfig::default() }, Loopback)
}

pub(super) fn outbound() -> Outbound {
    outbound_with(FixedSecrets::default())
}

pub(super) fn outbound_with(secrets: FixedSecrets) -> Outbound {
    Outbound::with_connector(Connector::new(guard()), Arc::new(secrets), BreakerConfig::default()).unwrap()
}

/// An `Outbound` to targets with these limits.
pub(super) fn outbound_limited(concurrency: Option<u32>, rate_per_second: Option<f64>) -> Outbound {
    let limits = TargetLimits::new(concurrency, rate_per_second).unwrap();
    let targets = TargetConfig { limits, ..TargetConfig::default() };
    Outbound::with_connector(Connector::new(guard()), Arc::new(FixedSecrets::default()), targets).unwrap()
}

/// The endpoint of the activity on a server, for this wire format.
pub(super) fn endpoint(wire: WireFormat, base: &str) -> String {
    if wire == WireFormat::Grpc { base.to_owned() } else { format!("{base}/activities/charge") }
}

pub(super) fn http(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// A declaration for this wire format and server, with more fields.
pub(super) fn declared(wire: WireFormat, base: &str, more: Value) -> RemoteDeclaration {
    let mut declared = json!({
        "name": "charge", "category": "other", "transport": wire.as_str(), "endpoint": endpoint(wire, base),
    });
    let Value::Object(more) = more else { panic!("{more}") };
    declared.as_object_mut().unwrap().extend(more);
    RemoteDeclaration::read(&declared).unwrap()
}

pub(super) fn remote(wire: WireFormat, address: SocketAddr) -> RemoteActivity {
    remote_with(wire, address, json!({}))
}

pub(super) fn remote_with(wire: WireFormat, address: SocketAddr, more: Value) -> RemoteActivity {
    RemoteActivity::new(declared(wire, &http(address), more), &outbound()).unwrap()
}

pub(super) fn call(input: Value) -> CallAttempt {
    let activity = "charge".to_owned();
    let input = Arc::new(input);
    CallAttempt {
        activity,
        input,
        metadata: metadata(),
        attempt_timeout_ms: 8_000,
        probe_first: false,
        secret_pointers: Vec::new(),
        elapsed_since_dispatch: std::time::Duration::ZERO,
    }
}

pub(super) async fn run_attempt(remote: &RemoteActivity, input: Value) -> Result<Value, CallFailure> {
    result(remote.run_attempt(call(input)).await)
}

pub(super) fn result(result: AttemptResult) -> Result<Value, CallFailure> {
    match result {
        AttemptResult::Completed(output) => Ok((*output).clone()),
        AttemptResult::Failed(failure) => Err(failure),
    }
}

/// The code of a failure, whether it is retryable, and whether its outcome is unknown.
pub(super) fn failure_summary(result: &Result<Value, CallFailure>) -> (&str, bool, bool) {
    let failure = result.as_ref().unwrap_err();
    (failure.code.as_str(), failure.retryable, failure.outcome_unknown)
}

/// The summary of a retryable failure with a known outcome.
pub(super) const fn unsent(code: &str) -> (&str, bool, bool) {
    (code, true, false)
}

/// The summary of a retryable failure with an unknown outcome.
pub(super) const fn unknown(code: &str) -> (&str, bool, bool) {
    (code, true, true)
}

/// The summary of a permanent failure.
pub(super) const fn permanent(code: &str) -> (&str, bool, bool) {
    (code, false, false)
}
