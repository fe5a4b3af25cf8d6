//! Executes a call in the order of the contract: metadata, recorded result, call in progress, deadline, claim, handler,
//! record, response.
//!
//! It knows nothing of wires: they decode an [`ActivityRequest`] and encode the [`ActivityResponse`]. No handler runs
//! without a durable claim, and no output or permanent failure of a handler is returned before it is recorded.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_dispatch::wire::{JSON_DEPTH_MAX, OUTPUT_BYTES_MAX, json};
use abide_dispatch::{Metadata, MetadataError, RpcCode, RpcStatus};
use abide_store::rows::PrivateRows;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::active_claims::catch_panic;
use crate::clock::ReceiverClock;
use crate::handler::{DynHandler, HandlerFailure, HandlerFuture, HandlerInvocation, HandlerOutput};
use crate::handler_rows::HandlerWrite;
use crate::idempotency::{ClaimTerms, HeldClaim, IdempotencyRecords, SettleOutcome, WorkState};
use crate::options::ReceiverOptions;
use crate::refusals;
use crate::rows::{RECORD_OVERHEAD_BYTES, WorkKey};

/// How often a call may lose the race between lookup and claim before the response is `IN_PROGRESS`.
const RACES_MAX: usize = 8;
/// Time limit of a handler, whatever the deadline.
const HANDLER_TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A call as a wire decoded it.
#[derive(Clone, Debug)]
pub struct ActivityRequest {
    pub activity: String,
    /// `Ok(None)` if none of the metadata keys is present.
    pub metadata: Result<Option<Metadata>, MetadataError>,
    /// The JSON text of the input; `None` if the request has no input, as a probe over gRPC.
    pub input: Option<Bytes>,
}

/// A response for a wire to encode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActivityResponse {
    /// Empty if it is not known.
    pub execution_id: String,
    /// The JSON text of the output, or the failure.
    pub result: Result<Bytes, RpcStatus>,
}

/// Receives calls. It is cheap to clone, and all clones are one receiver.
pub struct Receiver<S>(pub(crate) Arc<ReceiverInner<S>>);

pub(crate) struct ReceiverInner<S> {
    pub(crate) records: IdempotencyRecords<S>,
    pub(crate) clock: ReceiverClock,
    pub(crate) options: ReceiverOptions,
    handlers: BTreeMap<String, Arc<dyn DynHandler>>,
    output_bytes_max: usize,
    permits: Arc<Semaphore>,
    stopping: AtomicBool,
}

impl<S> Clone for Receiver<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> fmt::Debug for Receiver<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("handlers", &self.0.handlers.keys()).finish_non_exhaustive()
    }
}

impl<S: PrivateRows + 'static> Receiver<S> {
    pub(crate) fn new(
        records: IdempotencyRecords<S>,
        clock: ReceiverClock,
        options: ReceiverOptions,
        handlers: BTreeMap<String, Arc<dyn DynHandler>>,
    ) -> Self {
        let limit = records.store.capabilities().limits.value_bytes_max.saturating_sub(RECORD_OVERHEAD_BYTES);
        let output_bytes_max = options.output_bytes_max.min(limit).min(OUTPUT_BYTES_MAX);
        let permits = Arc::new(Semaphore::new(permits_max(&options)));
        let stopping = AtomicBool::new(false);
        Self(Arc::new(ReceiverInner {
            records,
            clock,
            options,
            handlers,
            output_bytes_max,
            permits,
            stopping,
        }))
    }

    /// Runs the handler, or returns the recorded result.
    ///
    /// A handler that has started keeps running when the client disconnects, and its result is recorded.
    pub async fn invoke(&self, request: ActivityRequest) -> ActivityResponse {
        match identify(request) {
            Err(response) => response,
            Ok((work, call)) => {
                let execution_id = call.metadata.execution_id.clone();
                ActivityResponse { execution_id, result: self.execute_once(work, call).await }
            }
        }
    }

    /// Returns the recorded result or the state of the call, and never runs anything.
    pub async fn probe(&self, request: ActivityRequest) -> ActivityResponse {
        match identify(request) {
            Err(response) => response,
            Ok((work, call)) => {
                let result = match self.0.records.lookup(work, self.0.clock.now()).await {
                    Ok(WorkState::Finished(result)) => result,
                    Ok(WorkState::InProgress) => Err(refusals::in_progress()),
                    Ok(WorkState::Free(_)) => Err(refusals::work_unknown()),
                    Err(error) => Err(refusals::record_error(&error)),
                };
                ActivityResponse { execution_id: call.metadata.execution_id, result }
            }
        }
    }

    /// Rejects new calls, and resolves when no handler is running.
    pub async fn drain(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
        let all = u32::try_from(permits_max(&self.0.options)).unwrap_or(u32::MAX);
        drop(self.0.permits.acquire_many(all).await);
    }

    async fn execute_once(&self, work: WorkKey, call: IdentifiedCall) -> Result<Bytes, RpcStatus> {
        for _ in 0..RACES_MAX {
            let now = self.0.clock.now();
            let state = self.0.records.lookup(work, now).await;
            let stale = match state.map_err(|error| refusals::record_error(&error))? {
                WorkState::Finished(result) => return result,
                WorkState::InProgress => return Err(refusals::in_progress()),
                WorkState::Free(stale) => stale,
            };
            let deadline = call.metadata.deadline;
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Err(refusals::deadline_expired());
            }
            let (handler, invocation) = self.prepare(&call)?;
            let permit = self.acquire_permit()?;
            let handler_timeout = self.0.options.handler_timeout.into();
            let terms = ClaimTerms {
                claim_expires_at: deadline.unwrap_or_else(|| now.plus(handler_timeout)),
                // Most handlers end within the handler timeout, so the sweep checks most records only once.
                expiry_row_at: now.plus(self.0.options.retention.into()).plus(handler_timeout),
            };
            let claim = self.0.records.claim(work, stale, terms).await;
            let Some(claim) = claim.map_err(|error| refusals::record_error(&error))? else { continue };
            let left = Duration::from_millis(terms.claim_expires_at.since(now).0);
            let limit = left.min(HANDLER_TIME_MAX);
            let run = self.clone().run_handler(claim, handler.handle_boxed(invocation), limit, permit);
            // In its own task: a client that disconnects must not stop a handler whose effect may have happened.
            return tokio::spawn(run).await.unwrap_or_else(|_| Err(refusals::outcome_unknown()));
        }
        Err(refusals::in_progress())
    }

    /// The handler and its invocation; fails if the activity is unknown or the input cannot be read.
    fn prepare(&self, call: &IdentifiedCall) -> Result<(Arc<dyn DynHandler>, HandlerInvocation), RpcStatus> {
        let unknown = || refusals::activity_unknown(&call.activity);
        let handler = self.0.handlers.get(&call.activity).ok_or_else(unknown)?;
        let input = json::read(&call.input).map_err(|error| refusals::body_malformed(&error))?;
        let activity = call.activity.clone();
        let input_bytes = call.input.clone();
        let metadata = call.metadata.clone();
        Ok((Arc::clone(handler), HandlerInvocation { activity, input, input_bytes, metadata }))
    }

    fn acquire_permit(&self) -> Result<OwnedSemaphorePermit, RpcStatus> {
        if self.0.stopping.load(Ordering::Relaxed) {
            return Err(refusals::stopping());
        }
        Arc::clone(&self.0.permits).try_acquire_owned().map_err(|_| refusals::too_many_running())
    }

    /// Makes one attempt, then records its result or releases the claim.
    async fn run_handler(
        self,
        claim: HeldClaim,
        attempt: HandlerFuture,
        limit: Duration,
        _permit: OwnedSemaphorePermit,
    ) -> Result<Bytes, RpcStatus> {
        let (result, writes) = match tokio::time::timeout(limit, catch_panic(attempt)).await {
            Ok(Ok(Ok(HandlerOutput { output, writes }))) => match self.encode_output(&output) {
                Ok(output) => (Ok(output), writes),
                // Without a result there are no writes either.
                Err(status) => (Err(status), Vec::new()),
            },
            Ok(Ok(Err(HandlerFailure { status, writes }))) => (Err(normalize_failure(status)), writes),
            Ok(Err(_panic)) => (Err(refusals::handler_panicked()), Vec::new()),
            Err(_) => (Err(refusals::handler_timeout()), Vec::new()),
        };
        match result {
            Err(status) if status.code.is_retryable() => {
                self.release(&claim, writes).await;
                Err(status)
            }
            result => self.record_result(&claim, result, writes).await,
        }
    }

    /// Records the result, which every duplicate gets from then on.
    async fn record_result(
        &self,
        claim: &HeldClaim,
        result: Result<Bytes, RpcStatus>,
        writes: Vec<HandlerWrite>,
    ) -> Result<Bytes, RpcStatus> {
        let records = &self.0.records;
        match records.finish(claim, &result, writes, self.0.clock.now()).await {
            SettleOutcome::Recorded => result,
            SettleOutcome::ClaimLost => Err(refusals::claim_lost()),
            SettleOutcome::WriteConflict => {
                self.release(claim, Vec::new()).await;
                Err(refusals::effect_conflict())
            }
            SettleOutcome::Refused(error) => {
                let refusal = Err(refusals::effect_refused(error.to_string()));
                match records.finish(claim, &refusal, Vec::new(), self.0.clock.now()).await {
                    SettleOutcome::Recorded => refusal,
                    other => Err(unknown_outcome(&other)),
                }
            }
            other @ SettleOutcome::Unknown(_) => Err(unknown_outcome(&other)),
        }
    }

    /// Releases a claim. If that fails, the claim stays in the store but is stale, because no handler runs under it.
    async fn release(&self, claim: &HeldClaim, writes: Vec<HandlerWrite>) {
        let has_writes = !writes.is_empty();
        let outcome = self.0.records.release(claim, writes).await;
        if outcome != SettleOutcome::Recorded {
            tracing::warn!(?outcome, has_writes, "claim release failed");
        }
    }

    fn encode_output(&self, output: &serde_json::Value) -> Result<Bytes, RpcStatus> {
        if !json::depth_within(output, JSON_DEPTH_MAX) {
            let message = format!("the output is nested more than {JSON_DEPTH_MAX} levels deep");
            return Err(refusals::output_too_large(message));
        }
        let bytes = json::write(output);
        let size = bytes.len();
        let max = self.0.output_bytes_max;
        if size > max {
            let message = format!("the output has {size} bytes; the limit is {max}");
            return Err(refusals::output_too_large(message));
        }
        Ok(bytes.into())
    }
}

/// A call that is identified by its metadata or, without any, by its input.
struct IdentifiedCall {
    activity: String,
    metadata: Metadata,
    input: Bytes,
}

fn identify(request: ActivityRequest) -> Result<(WorkKey, IdentifiedCall), ActivityResponse> {
    let ActivityRequest { activity, metadata, input } = request;
    let refusal = |malformed: &MetadataError| ActivityResponse {
        execution_id: String::new(),
        result: Err(refusals::metadata_malformed(malformed)),
    };
    let metadata = match (metadata, &input) {
        (Err(malformed), _) => return Err(refusal(&malformed)),
        (Ok(Some(metadata)), _) => metadata,
        (Ok(None), Some(input)) => Metadata::derive_from_body(&activity, input),
        (Ok(None), None) => {
            let key = abide_dispatch::metadata::EXECUTION_ID;
            return Err(refusal(&MetadataError::Missing { key }));
        }
    };
    let work = WorkKey::new(&metadata.execution_id, &activity, &metadata.idempotency_key);
    Ok((work, IdentifiedCall { activity, metadata, input: input.unwrap_or_default() }))
}

/// A failure with the code OK is a bug in the handler, and becomes INTERNAL.
fn normalize_failure(status: RpcStatus) -> RpcStatus {
    if status.code == RpcCode::Ok { RpcStatus { code: RpcCode::Internal, ..status } } else { status }
}

fn unknown_outcome(outcome: &SettleOutcome) -> RpcStatus {
    tracing::warn!(?outcome, "a result could not be recorded");
    refusals::outcome_unknown()
}

fn permits_max(options: &ReceiverOptions) -> usize {
    options.concurrent_handlers_max.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize))
}
