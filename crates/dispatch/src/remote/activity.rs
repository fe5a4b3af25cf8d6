//! One remote activity: the path of an attempt, from its checks to its result.
//!
//! ```text
//!  metadata, deadline, input ─► admission: limits, permit, circuit ─► encode, sign ─► exchange ─► decode ─► output
//!  ────────────── nothing is sent up to here, so the outcome is known ──────────────┘
//! ```
//! Makes one attempt and reports its result. Knows nothing about retries.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::AUTHORIZATION;
use hyper::http::uri::PathAndQuery;
use serde_json::Value;
use tokio::time::Instant;

use super::admission::Admission;
use super::circuit_breaker::{BreakerSignal, CircuitState};
use super::connection_pool::{ConnectionPool, HttpVersions, OutboundRequest};
use super::declaration::{AuthDeclaration, DeclarationError, RemoteDeclaration, WireFormat};
use super::exchange::{self, RequestKind};
use super::grpc;
use super::input_secrets::secrets_late;
use super::limiter::Limiter;
use super::outbound::Outbound;
use super::redact::SentSecrets;
use super::request_signing::{self, SigningInput};
use crate::contract::ActivityContract;
use crate::egress_guard::Target;
use crate::http::HttpResponse;
use crate::transport::{AttemptResult, CallAttempt, CallFailure, PermitSource, UnlimitedPermits};
use crate::wire::{FAILURE_BYTES_MAX, RESPONSE_BYTES_MAX};

/// How long a call without a deadline may wait for its permits.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);
/// The longest timeout of an attempt, whatever a call says.
const ATTEMPT_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// An activity that another service runs, ready to be called.
pub struct RemoteActivity {
    declaration: RemoteDeclaration,
    contract: ActivityContract,
    target: Target,
    invoke_path: PathAndQuery,
    probe_path: PathAndQuery,
    pool: Arc<ConnectionPool>,
    admission: Admission,
    outbound: Outbound,
}

impl RemoteActivity {
    /// Checks that the endpoint may be called, and prepares to call it. Connects to nothing yet.
    pub fn new(declaration: RemoteDeclaration, outbound: &Outbound) -> Result<Self, DeclarationError> {
        let contract = ActivityContract::new(declaration.activity.clone())?;
        let target = outbound.guard().check_url(&declaration.endpoint)?;
        outbound.check_auth(&declaration)?;
        let is_grpc = declaration.transport == WireFormat::Grpc;
        let path = |kind| {
            let path = target.path_and_query();
            let path = if is_grpc {
                format!("{}{}", path.trim_end_matches('/'), grpc::method_path(kind))
            } else {
                path
            };
            let invalid = || DeclarationError::Invalid {
                field: "endpoint".to_owned(),
                expected: "a URL with a path that can be sent",
            };
            path.parse::<PathAndQuery>().map_err(|_| invalid())
        };
        let invoke_path = path(RequestKind::Invoke)?;
        let probe_path = path(RequestKind::Probe)?;
        let http_versions = if is_grpc { HttpVersions::Http2 } else { HttpVersions::Either };
        let pool = outbound.pool(&target, http_versions, &declaration.tls);
        let limiter = Limiter::for_activity(declaration.concurrency, declaration.rate_per_second);
        let admission = Admission::new(limiter, outbound.limiter(&target), outbound.breaker(&target));
        Ok(Self {
            declaration,
            contract,
            target,
            invoke_path,
            probe_path,
            pool,
            admission,
            outbound: outbound.clone(),
        })
    }

    pub fn declaration(&self) -> &RemoteDeclaration {
        &self.declaration
    }

    /// The scheme, host and port that are called.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The number of attempts in progress.
    pub fn in_flight(&self) -> usize {
        self.admission.in_flight(self.declaration.concurrency)
    }

    /// The state of the target's circuit breaker.
    pub fn circuit(&self) -> CircuitState {
        self.admission.circuit()
    }

    /// Makes one attempt. Dropping the future aborts the exchange.
    ///
    /// If an earlier attempt may have run, an activity that supports probes is probed first: finished work is not sent
    /// again.
    pub async fn run_attempt(&self, call: CallAttempt) -> AttemptResult {
        self.run_attempt_with_permit(call, &UnlimitedPermits).await
    }

    /// The same under a permit that is shared with other calls. None is held while the call waits for the limits of its
    /// activity or its target.
    pub async fn run_attempt_with_permit(
        &self,
        call: CallAttempt,
        permits: &impl PermitSource,
    ) -> AttemptResult {
        let begun = Instant::now();
        if call.probe_first
            && let Some(result) = self.probe_before_retry(&call, begun, permits).await
        {
            return result;
        }
        match self.send_request(&call, RequestKind::Invoke, begun, permits).await {
            Ok(output) => AttemptResult::Completed(Arc::new(output)),
            Err(failure) => AttemptResult::Failed(failure.with_target(self.target.to_string())),
        }
    }

    /// One exchange. Waiting for admission is not part of the attempt, but the deadline of the call keeps running.
    pub(super) async fn send_request(
        &self,
        call: &CallAttempt,
        kind: RequestKind,
        begun: Instant,
        permits: &impl PermitSource,
    ) -> Result<Value, CallFailure> {
        // A deadline that is too far away to be represented counts as none.
        let deadline = call.time_to_deadline().and_then(|left| begun.checked_add(left));
        let waiting = async {
            self.check_attempt(call)?;
            let until = begun + PERMIT_WAIT_MAX;
            let until = deadline.map_or(until, |deadline| deadline.min(until));
            loop {
                let admission = self.admission.acquire(until, permits).await?;
                // The last step that can take long: a call that sleeps with a node permit keeps it from calls that
                // could use it.
                let permit = permits.acquire().await?;
                match self.admission.admit(admission, permits)? {
                    Some(attempt) => return Ok((attempt, permit)),
                    None => permits.return_unused(permit),
                }
            }
        };
        let (mut attempt, permit) =
            waiting.await.map_err(|failure: CallFailure| unsent_failure(failure, deadline))?;
        let admitted = Instant::now();
        let own_limit = Duration::from_millis(call.attempt_timeout_ms).min(ATTEMPT_TIMEOUT_MAX);
        let until = deadline.map_or(admitted + own_limit, |deadline| deadline.min(admitted + own_limit));
        let time_limit = until.saturating_duration_since(admitted);
        let outgoing = tokio::time::timeout_at(until, self.build_request(call, kind, begun)).await;
        let outgoing = outgoing.unwrap_or_else(|_| Err(secrets_late(time_limit)));
        let outgoing = outgoing.map_err(|failure| unsent_failure(failure, deadline))?;
        // The last check before anything is written.
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(CallFailure::deadline_exceeded());
        }
        let secrets = secrets_in_request(&outgoing);
        let response = self.pool.exchange(outgoing, time_limit, until, permits).await;
        let response = response.map_err(|failure| CallFailure {
            // Without a response and without an unknown outcome, nothing was sent.
            not_sent: failure.status.is_none() && !failure.outcome_unknown,
            ..failure
        });
        let result = response.and_then(|response| self.decode_response(&response));
        attempt.record(breaker_signal(&result));
        drop(attempt);
        let result = result.map_err(|failure| {
            let hold = failure.hold.map(|reason| self.admission.hold_reason(reason));
            secrets.redact_failure(CallFailure { hold, ..failure })
        });
        // A probe does not send the work.
        if kind == RequestKind::Probe {
            permits.return_unused(permit);
        }
        let output = result?;
        self.contract.check_output(&output)?;
        Ok(output)
    }

    /// Checks a call before anything is sent.
    fn check_attempt(&self, call: &CallAttempt) -> Result<(), CallFailure> {
        call.time_left()?;
        let checked = call.metadata.check();
        checked.map_err(|error| CallFailure::permanent("MetadataInvalid", error.to_string()))?;
        self.contract.check_input(&call.input)
    }

    async fn build_request(
        &self,
        call: &CallAttempt,
        kind: RequestKind,
        begun: Instant,
    ) -> Result<OutboundRequest, CallFailure> {
        let wire = self.declaration.transport;
        let exchange::EncodedRequest { mut headers, body } = exchange::encode_request(wire, call, kind)?;
        let path = if kind == RequestKind::Probe { &self.probe_path } else { &self.invoke_path };
        // The call says when it was dispatched; since then it has waited for admission.
        let elapsed = call.elapsed_since_dispatch + begun.elapsed();
        let signed_at = call.metadata.dispatched_at.plus(elapsed.into());
        let request = SigningInput { method: "POST", path: path.as_str(), signed_at, nonce: "", body: &body };
        if self.declaration.auth != AuthDeclaration::default() {
            let auth = &self.declaration.auth;
            let adding = Box::pin(request_signing::add_credentials(
                auth,
                self.outbound.secrets(),
                request,
                &mut headers,
            ));
            adding.await?;
        }
        let bytes_max = (RESPONSE_BYTES_MAX + grpc::PREFIX_BYTES, FAILURE_BYTES_MAX);
        Ok(OutboundRequest { path: path.clone(), headers, body, bytes_max })
    }

    fn decode_response(&self, response: &HttpResponse) -> Result<Value, CallFailure> {
        exchange::decode_response(self.declaration.transport, response, &self.target)
    }
}

/// The secrets that a request shows to its target. A key that it is signed with is not shown.
fn secrets_in_request(outgoing: &OutboundRequest) -> SentSecrets {
    let mut sent = SentSecrets::default();
    let shown = outgoing.headers.get(AUTHORIZATION).and_then(|shown| shown.to_str().ok());
    if let Some(token) = shown.and_then(|shown| shown.strip_prefix("Bearer ")) {
        sent.add(token);
    }
    sent
}

/// The failure of a call that was not sent. A retryable one becomes a missed deadline once the deadline has passed.
fn unsent_failure(failure: CallFailure, deadline: Option<Instant>) -> CallFailure {
    match deadline {
        Some(deadline) if failure.retryable && deadline <= Instant::now() => CallFailure::deadline_exceeded(),
        _ => failure.with_not_sent(),
    }
}

/// The signal of an exchange to the circuit breaker. A target that answers, even with a rejection, is healthy; an
/// exchange that this side could not begin is ignored.
fn breaker_signal(result: &Result<Value, CallFailure>) -> BreakerSignal {
    let failure = match result {
        Ok(_) => return BreakerSignal::Success,
        Err(failure) => failure,
    };
    match (failure.code.as_str(), failure.status_code()) {
        // Detected on this side, after a full read: a target that keeps doing this must open the circuit.
        ("ResponseTooLarge", _) => BreakerSignal::Failure,
        ("ConnectFailed" | "AttemptTimeout", None) => BreakerSignal::Failure,
        (_, None) if failure.outcome_unknown => BreakerSignal::Failure,
        ("AddressDenied" | "SecretUnavailable" | "TlsUnavailable", None) => BreakerSignal::Ignored,
        (_, Some(500..)) if failure.retryable => BreakerSignal::Failure,
        _ => BreakerSignal::Success,
    }
}

impl fmt::Debug for RemoteActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteActivity")
            .field("activity", &self.declaration.activity.name)
            .field("transport", &self.declaration.transport)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
