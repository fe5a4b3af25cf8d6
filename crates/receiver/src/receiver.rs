//! The order in which a call is dealt with, whatever wire it came over: metadata, recorded answer, work in progress, deadline, claim,
//! handler, record, answer.
//!
//! Knows nothing of wires: they hand over a [`Request`] and spell the [`Reply`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_dispatch::wire::{JSON_DEPTH_MAX, PAYLOAD_BYTES_MAX, json};
use abide_dispatch::{Code, MalformedMetadata, Metadata, Status};
use abide_store::rows::PrivateRows;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::Clock;
use crate::effects::Effect;
use crate::handler::{AnyHandler, Done, Failed, Handling, Invocation};
use crate::options::{Options, ms};
use crate::records::{Claimed, Found, Records, Settled, Terms};
use crate::refusals;
use crate::rows::{AROUND_ANSWER_BYTES, Work};
use crate::running::caught;

/// How often the same work may be taken away between looking and claiming before the caller is told so.
const RACES_MAX: usize = 8;
/// The longest that a handler is waited for, whatever the deadline says.
const HANDLER_TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A call as a wire hands it over.
#[derive(Clone, Debug)]
pub struct Request {
    /// The activity's name.
    pub activity: String,
    /// What came with it: none, or none that can be understood, among others.
    pub metadata: Result<Option<Metadata>, MalformedMetadata>,
    /// The JSON text of the input; none if there is no input to know the work by, as in a probe over gRPC.
    pub input: Option<Bytes>,
}

/// What a wire spells out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Whose call it was, if that is known.
    pub execution_id: String,
    /// The JSON text of the output, or why there is none.
    pub answer: Result<Bytes, Status>,
}

/// Receives calls. Cheap to clone; all clones are one receiver.
pub struct Receiver<S>(pub(crate) Arc<Inner<S>>);

pub(crate) struct Inner<S> {
    pub(crate) records: Records<S>,
    pub(crate) clock: Clock,
    pub(crate) options: Options,
    handlers: BTreeMap<String, Arc<dyn AnyHandler>>,
    answer_bytes_max: usize,
    room: Arc<Semaphore>,
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
        records: Records<S>,
        clock: Clock,
        options: Options,
        handlers: BTreeMap<String, Arc<dyn AnyHandler>>,
    ) -> Self {
        let limit = records.store.capabilities().limits.value_bytes_max.saturating_sub(AROUND_ANSWER_BYTES);
        let answer_bytes_max = options.answer_bytes_max.min(limit).min(PAYLOAD_BYTES_MAX);
        let room = Arc::new(Semaphore::new(running_max(&options)));
        let stopping = AtomicBool::new(false);
        Self(Arc::new(Inner { records, clock, options, handlers, answer_bytes_max, room, stopping }))
    }

    /// Runs the handler, or answers what it answered before.
    ///
    /// What has begun goes on when the caller stops waiting, and its answer is recorded.
    pub async fn invoke(&self, request: Request) -> Reply {
        match identified(request) {
            Err(reply) => reply,
            Ok((work, call)) => {
                let execution_id = call.metadata.execution_id.clone();
                Reply { execution_id, answer: self.answer(work, call).await }
            }
        }
    }

    /// Answers what was answered before, and never runs anything.
    pub async fn probe(&self, request: Request) -> Reply {
        match identified(request) {
            Err(reply) => reply,
            Ok((work, call)) => {
                let answer = match self.0.records.look(work, self.0.clock.now()).await {
                    Ok(Found::Finished(answer)) => answer,
                    Ok(Found::InProgress) => Err(refusals::in_progress()),
                    Ok(Found::Free(_)) => Err(refusals::work_unknown()),
                    Err(trouble) => Err(refusals::trouble(&trouble)),
                };
                Reply { execution_id: call.metadata.execution_id, answer }
            }
        }
    }

    /// Takes nothing new, and resolves when nothing is being done any more.
    pub async fn drain(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
        let all = u32::try_from(running_max(&self.0.options)).unwrap_or(u32::MAX);
        drop(self.0.room.acquire_many(all).await);
    }

    async fn answer(&self, work: Work, call: Call) -> Result<Bytes, Status> {
        for _ in 0..RACES_MAX {
            let now = self.0.clock.now();
            let found = self.0.records.look(work, now).await;
            let void = match found.map_err(|trouble| refusals::trouble(&trouble))? {
                Found::Finished(answer) => return answer,
                Found::InProgress => return Err(refusals::in_progress()),
                Found::Free(void) => void,
            };
            let deadline = call.metadata.deadline_epoch_ms;
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Err(refusals::deadline_expired());
            }
            let (handler, invocation) = self.prepared(&call)?;
            let permit = self.room()?;
            let own = ms(self.0.options.handler_timeout);
            let terms = Terms {
                expires_at: deadline.unwrap_or_else(|| now.saturating_add(own)),
                // Most handlers end within their own time, so most records need not be looked at twice.
                expiry_at: now.saturating_add(ms(self.0.options.retention)).saturating_add(own),
            };
            let claimed = self.0.records.claim(work, void, terms).await;
            let Some(claimed) = claimed.map_err(|trouble| refusals::trouble(&trouble))? else { continue };
            let left = u64::try_from(terms.expires_at.saturating_sub(now)).unwrap_or(0);
            let limit = Duration::from_millis(left).min(HANDLER_TIME_MAX);
            let run = self.clone().run(claimed, handler.handle_any(invocation), limit, permit);
            // A task of its own: a caller who goes away must not stop what may have had its effect already.
            return tokio::spawn(run).await.unwrap_or_else(|_| Err(refusals::outcome_unknown()));
        }
        Err(refusals::in_progress())
    }

    /// The handler and what it is given, if there is one and it can be.
    fn prepared(&self, call: &Call) -> Result<(Arc<dyn AnyHandler>, Invocation), Status> {
        let unknown = || refusals::activity_unknown(&call.activity);
        let handler = self.0.handlers.get(&call.activity).ok_or_else(unknown)?;
        let input = json::read(&call.input).map_err(|unreadable| refusals::body_malformed(&unreadable))?;
        let (activity, bytes, metadata) = (call.activity.clone(), call.input.clone(), call.metadata.clone());
        Ok((Arc::clone(handler), Invocation { activity, input, bytes, metadata }))
    }

    fn room(&self) -> Result<OwnedSemaphorePermit, Status> {
        if self.0.stopping.load(Ordering::Relaxed) {
            return Err(refusals::stopping());
        }
        Arc::clone(&self.0.room).try_acquire_owned().map_err(|_| refusals::too_many_running())
    }

    /// One attempt, and what becomes durable of it.
    async fn run(
        self,
        claimed: Claimed,
        handling: Handling,
        limit: Duration,
        _permit: OwnedSemaphorePermit,
    ) -> Result<Bytes, Status> {
        let (answer, effects) = match tokio::time::timeout(limit, caught(handling)).await {
            Ok(Ok(Ok(Done { output, effects }))) => match self.written(&output) {
                Ok(output) => (Ok(output), effects),
                // What has no answer has no effect either.
                Err(status) => (Err(status), Vec::new()),
            },
            Ok(Ok(Err(Failed { status, effects }))) => (Err(failed(status)), effects),
            Ok(Err(_panic)) => (Err(refusals::handler_panicked()), Vec::new()),
            Err(_) => (Err(refusals::handler_timeout()), Vec::new()),
        };
        match answer {
            Err(status) if status.code.is_retryable() => {
                self.release(&claimed, effects).await;
                Err(status)
            }
            answer => self.record(&claimed, answer, effects).await,
        }
    }

    /// Records an answer that is given from now on.
    async fn record(
        &self,
        claimed: &Claimed,
        answer: Result<Bytes, Status>,
        effects: Vec<Effect>,
    ) -> Result<Bytes, Status> {
        let records = &self.0.records;
        match records.finish(claimed, &answer, effects, self.0.clock.now()).await {
            Settled::Recorded => answer,
            Settled::ClaimLost => Err(refusals::claim_lost()),
            Settled::EffectConflict => {
                self.release(claimed, Vec::new()).await;
                Err(refusals::effect_conflict())
            }
            Settled::Refused(error) => {
                let refused = Err(refusals::effect_refused(error.to_string()));
                match records.finish(claimed, &refused, Vec::new(), self.0.clock.now()).await {
                    Settled::Recorded => refused,
                    other => Err(unsettled(&other)),
                }
            }
            other @ Settled::Unsure(_) => Err(unsettled(&other)),
        }
    }

    /// Gives up a claim. One that stays behind in the store is void all the same: nobody is at it.
    async fn release(&self, claimed: &Claimed, effects: Vec<Effect>) {
        let with_effects = !effects.is_empty();
        let settled = self.0.records.release(claimed, effects).await;
        if settled != Settled::Recorded {
            tracing::warn!(?settled, with_effects, "a claim was given up without a trace");
        }
    }

    fn written(&self, output: &serde_json::Value) -> Result<Bytes, Status> {
        if !json::depth_within(output, JSON_DEPTH_MAX) {
            let message = format!("the output is nested more than {JSON_DEPTH_MAX} deep");
            return Err(refusals::output_too_large(message));
        }
        let bytes = json::write(output);
        let (size, max) = (bytes.len(), self.0.answer_bytes_max);
        if size > max {
            let message = format!("the output has {size} bytes, and {max} are recorded at most");
            return Err(refusals::output_too_large(message));
        }
        Ok(bytes.into())
    }
}

/// A call that is known by its metadata, or by its input.
struct Call {
    activity: String,
    metadata: Metadata,
    input: Bytes,
}

fn identified(request: Request) -> Result<(Work, Call), Reply> {
    let Request { activity, metadata, input } = request;
    let refused = |malformed: &MalformedMetadata| Reply {
        execution_id: String::new(),
        answer: Err(refusals::metadata_malformed(malformed)),
    };
    let metadata = match (metadata, &input) {
        (Err(malformed), _) => return Err(refused(&malformed)),
        (Ok(Some(metadata)), _) => metadata,
        (Ok(None), Some(input)) => Metadata::of_body(&activity, input),
        (Ok(None), None) => {
            let key = abide_dispatch::metadata::EXECUTION_ID;
            return Err(refused(&MalformedMetadata::Missing { key }));
        }
    };
    let work = Work::of(&metadata.execution_id, &activity, &metadata.idempotency_key);
    Ok((work, Call { activity, metadata, input: input.unwrap_or_default() }))
}

/// A failure that says it is none is a mistake of the handler.
fn failed(status: Status) -> Status {
    if status.code == Code::Ok { Status { code: Code::Internal, ..status } } else { status }
}

fn unsettled(settled: &Settled) -> Status {
    tracing::warn!(?settled, "an answer could not be recorded");
    refusals::outcome_unknown()
}

fn running_max(options: &Options) -> usize {
    options.running_max.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize))
}
