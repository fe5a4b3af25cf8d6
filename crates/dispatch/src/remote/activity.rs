//! One remote activity: what a delivery goes through, from its checks to its answer.
//!
//! ```text
//!  metadata, deadline, input ─► gate: turn, room, circuit ─► written by its wire, signed ─► exchange ─► read by its wire ─► output
//!  ────────────────────── nothing is sent until here, so the outcome is known ─────────────────────┘
//! ```
//! Delivers once and reports. Knows nothing of retries.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::AUTHORIZATION;
use hyper::http::uri::PathAndQuery;
use serde_json::Value;
use tokio::time::Instant;

use super::breaker::{Circuit, Verdict};
use super::credentials::{self, Signed};
use super::declaration::{Auth, DeclarationError, RemoteDeclaration, Wire};
use super::exchange::{self, Ask};
use super::gate::Gate;
use super::grpc;
use super::limits::Line;
use super::outbound::Outbound;
use super::pool::{Origin, Outgoing, Speaks};
use super::redact::Sent;
use crate::contract::Contract;
use crate::guard::Target;
use crate::http::Exchanged;
use crate::transport::{Answer, Call, Failure, Room, Unbounded};
use crate::wire::{BODY_BYTES_MAX, FAILURE_BYTES_MAX};

/// How long a call without a deadline may wait for its turn.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);
/// The longest attempt, whatever a call says.
const ATTEMPT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// An activity that another service runs, ready to be called.
pub struct Remote {
    declaration: RemoteDeclaration,
    contract: Contract,
    target: Target,
    invoke: PathAndQuery,
    probe: PathAndQuery,
    origin: Arc<Origin>,
    gate: Gate,
    outbound: Outbound,
}

impl Remote {
    /// Checks that the endpoint may be called, and gets ready for it. Connects to nothing yet.
    pub fn new(declaration: RemoteDeclaration, outbound: &Outbound) -> Result<Self, DeclarationError> {
        let contract = Contract::new(declaration.activity.clone())?;
        let target = outbound.guard().check_url(&declaration.endpoint)?;
        outbound.check_auth(&declaration)?;
        let is_grpc = declaration.transport == Wire::Grpc;
        let path = |ask| {
            let path = target.path_and_query();
            let path =
                if is_grpc { format!("{}{}", path.trim_end_matches('/'), grpc::path(ask)) } else { path };
            let wrong = || DeclarationError::Wrong {
                field: "endpoint".to_owned(),
                expected: "a URL with a path that can be sent",
            };
            path.parse::<PathAndQuery>().map_err(|_| wrong())
        };
        let (invoke, probe) = (path(Ask::Invoke)?, path(Ask::Probe)?);
        let speaks = if is_grpc { Speaks::Http2 } else { Speaks::Either };
        let origin = outbound.origin(&target, speaks, &declaration.tls);
        let own = Line::of_activity(declaration.concurrency, declaration.rate_per_second);
        let gate = Gate::new(own, outbound.line(&target), outbound.breaker(&target));
        Ok(Self { declaration, contract, target, invoke, probe, origin, gate, outbound: outbound.clone() })
    }

    /// What is declared of it.
    pub fn declaration(&self) -> &RemoteDeclaration {
        &self.declaration
    }

    /// Who is called: scheme, host and port.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Deliveries under way.
    pub fn under_way(&self) -> usize {
        self.gate.under_way(self.declaration.concurrency)
    }

    /// Whether its target is asked now.
    pub fn circuit(&self) -> Circuit {
        self.gate.circuit()
    }

    /// Delivers the call once. Dropping the future gives the exchange up.
    ///
    /// If an earlier delivery may have run, whoever can be asked is asked first: what is finished is not sent again.
    pub async fn deliver(&self, call: Call) -> Answer {
        self.deliver_in(call, &Unbounded).await
    }

    /// The same in room that is shared with others: none is taken while the call waits for a place
    /// before its target, or for its turn.
    pub async fn deliver_in(&self, call: Call, room: &impl Room) -> Answer {
        let begun = Instant::now();
        if call.ask_first
            && let Some(answer) = self.known(&call, begun, room).await
        {
            return answer;
        }
        match self.ask(&call, Ask::Invoke, begun, room).await {
            Ok(output) => Answer::Completed(Arc::new(output)),
            Err(failure) => Answer::Failed(failure.with_target(self.target.to_string())),
        }
    }

    /// One exchange. Waiting before it is no part of the attempt, but the deadline of the call does not wait.
    pub(super) async fn ask(
        &self,
        call: &Call,
        ask: Ask,
        begun: Instant,
        room: &impl Room,
    ) -> Result<Value, Failure> {
        // One that lies beyond all time is none.
        let deadline = call.deadline_left().and_then(|left| begun.checked_add(left));
        let waiting = async {
            self.check(call)?;
            let until = begun + WAIT_MAX;
            let until = deadline.map_or(until, |deadline| deadline.min(until));
            loop {
                let turn = self.gate.turn(until).await?;
                // Last of all that can take long: whoever sleeps with a slot of the node keeps it from those who could use it.
                let held = room.take().await?;
                match self.gate.pass(turn)? {
                    Some(passage) => return Ok((passage, held)),
                    None => room.give_back(held),
                }
            }
        };
        let (mut passage, held) = waiting.await.map_err(|failure: Failure| in_time(failure, deadline))?;
        let until = Instant::now() + Duration::from_millis(call.attempt_timeout_ms).min(ATTEMPT_MAX);
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let outgoing = self.outgoing(call, ask, begun, until).await;
        let outgoing = outgoing.map_err(|failure| in_time(failure, deadline))?;
        // The last look before anything is written.
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Failure::expired());
        }
        let secrets = shown_secrets(&outgoing);
        let exchanged = self.origin.exchange(outgoing, until).await;
        let exchanged = exchanged.map_err(|failure| Failure {
            // What is neither answered nor unknown has not left.
            not_sent: failure.status.is_none() && !failure.outcome_unknown,
            ..failure
        });
        let answered = exchanged.and_then(|exchanged| self.read(&exchanged));
        passage.found(verdict(&answered));
        drop(passage);
        let answered = answered.map_err(|failure| secrets.taken_out(failure));
        // A question is no delivery.
        if ask == Ask::Probe {
            room.give_back(held);
        }
        let output = answered?;
        self.contract.check_output(&output)?;
        Ok(output)
    }

    /// What must hold of a call before anybody is asked.
    fn check(&self, call: &Call) -> Result<(), Failure> {
        call.time_left()?;
        let malformed = call.metadata.check();
        malformed.map_err(|error| Failure::for_good("MetadataInvalid", error.to_string()))?;
        self.contract.check_input(&call.input)
    }

    async fn outgoing(
        &self,
        call: &Call,
        ask: Ask,
        begun: Instant,
        until: Instant,
    ) -> Result<Outgoing, Failure> {
        let wire = self.declaration.transport;
        let left = until.saturating_duration_since(Instant::now());
        let exchange::Written { mut headers, body } = exchange::write(wire, call, ask, left)?;
        let path = if ask == Ask::Probe { &self.probe } else { &self.invoke };
        // The call says when it left; since then some time was spent at the gate.
        let waited = i64::try_from((call.waited + begun.elapsed()).as_millis()).unwrap_or(i64::MAX);
        let timestamp_ms = call.metadata.dispatched_at_epoch_ms.saturating_add(waited);
        let request = Signed { method: "POST", path: path.as_str(), timestamp_ms, nonce: "", body: &body };
        if self.declaration.auth != Auth::default() {
            let auth = &self.declaration.auth;
            let adding = Box::pin(credentials::add(auth, self.outbound.secrets(), request, &mut headers));
            let late = |_| Failure::retryable("SecretUnavailable", "the secrets did not come in time");
            tokio::time::timeout_at(until, adding).await.map_err(late)??;
        }
        let bytes_max = (BODY_BYTES_MAX + grpc::PREFIX_BYTES, FAILURE_BYTES_MAX);
        Ok(Outgoing { path: path.clone(), headers, body, bytes_max })
    }

    fn read(&self, exchanged: &Exchanged) -> Result<Value, Failure> {
        exchange::read(self.declaration.transport, exchanged, &self.target)
    }
}

/// What a request shows to whoever is called. A key that it is signed with is not shown.
fn shown_secrets(outgoing: &Outgoing) -> Sent {
    let mut sent = Sent::default();
    let shown = outgoing.headers.get(AUTHORIZATION).and_then(|shown| shown.to_str().ok());
    if let Some(token) = shown.and_then(|shown| shown.strip_prefix("Bearer ")) {
        sent.add(token);
    }
    sent
}

/// A failure before anything was sent. Whoever waited until the deadline has none of its time left.
fn in_time(failure: Failure, deadline: Option<Instant>) -> Failure {
    match deadline {
        Some(deadline) if failure.retryable && deadline <= Instant::now() => Failure::expired(),
        _ => failure.with_not_sent(),
    }
}

/// What an exchange shows of its target. One that answers, even if it refuses, is well; one that could not be asked shows nothing.
fn verdict(answered: &Result<Value, Failure>) -> Verdict {
    let failure = match answered {
        Ok(_) => return Verdict::Well,
        Err(failure) => failure,
    };
    match (failure.code.as_str(), failure.status_number()) {
        // Nobody said this, and every byte of it was read: a target that goes on like this is left alone for a while.
        ("ResponseTooLarge", _) => Verdict::Trouble,
        ("ConnectFailed" | "AttemptTimeout", None) => Verdict::Trouble,
        (_, None) if failure.outcome_unknown => Verdict::Trouble,
        ("AddressDenied" | "SecretUnavailable" | "TlsUnavailable", None) => Verdict::Nothing,
        (_, Some(500..)) if failure.retryable => Verdict::Trouble,
        _ => Verdict::Well,
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("activity", &self.declaration.activity.name)
            .field("transport", &self.declaration.transport)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
