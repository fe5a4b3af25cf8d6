//! The registry of activities and the one delivery each call gets: checked, limited in time, and survived if it panics.
//!
//! Reads no clock: whether the deadline has passed is told by the call itself. Decides nothing about retries.

use std::any::Any;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::declaration::Declaration;
use super::duration;
use super::schema::Schema;
use crate::http::TlsError;
use crate::metadata::Metadata;
use crate::transport::{Answer, Call, Failure, Transport};

/// What an activity is given.
#[derive(Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The input; it fits the declared schema.
    pub input: Arc<Value>,
    /// What travels with the call.
    pub metadata: Metadata,
}

impl fmt::Debug for Invocation {
    /// The input may hold resolved secrets, so it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

/// Why an activity cannot be registered.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum RegisterError {
    /// There is one of this name already.
    #[error("activity {activity:?} is registered already")]
    Duplicate {
        /// Which.
        activity: String,
    },
    /// Nobody could name it.
    #[error("an activity has an empty name")]
    EmptyName,
    /// A schema that is none.
    #[error("activity {activity:?}: its {field} schema: {reason}")]
    Schema {
        /// Whose.
        activity: String,
        /// `input` or `output`.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A limit that is no ISO-8601 duration.
    #[error("activity {activity:?}: its attempt timeout {text:?} is not an ISO-8601 duration such as PT30S")]
    AttemptTimeout {
        /// Whose.
        activity: String,
        /// What was given.
        text: String,
    },
    /// A built-in activity needs TLS, and has none.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

type Running = Pin<Box<dyn Future<Output = Result<Arc<Value>, Failure>> + Send>>;

struct Activity {
    declaration: Declaration,
    input: Option<Schema>,
    output: Option<Schema>,
    handler: Box<dyn Fn(Invocation) -> Running + Send + Sync>,
}

/// Activities that are called in process.
#[derive(Default)]
pub struct Activities {
    by_name: BTreeMap<String, Activity>,
}

impl Activities {
    /// Adds an activity.
    ///
    /// The handler is an async function. Its future is dropped when the delivery is cancelled or takes too long: that is the
    /// cancellation, there is no other sign. What must not be cut short belongs into a task of its own.
    pub fn register<H, F>(&mut self, declaration: Declaration, handler: H) -> Result<(), RegisterError>
    where
        H: Fn(Invocation) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Arc<Value>, Failure>> + Send + 'static,
    {
        let name = declaration.name.clone();
        if name.is_empty() {
            return Err(RegisterError::EmptyName);
        }
        let compile = |schema: &Option<Value>, field| {
            let wrong = |reason| RegisterError::Schema { activity: name.clone(), field, reason };
            schema.as_ref().map(Schema::compile).transpose().map_err(wrong)
        };
        let (input, output) =
            (compile(&declaration.input, "input")?, compile(&declaration.output, "output")?);
        if let Some(text) = declaration.attempt_timeout.clone().filter(|text| duration::parse(text).is_none())
        {
            return Err(RegisterError::AttemptTimeout { activity: name, text });
        }
        let handler = Box::new(move |invocation| Box::pin(handler(invocation)) as Running);
        match self.by_name.entry(name) {
            Entry::Occupied(entry) => Err(RegisterError::Duplicate { activity: entry.key().clone() }),
            Entry::Vacant(entry) => {
                entry.insert(Activity { declaration, input, output, handler });
                Ok(())
            }
        }
    }

    /// What definitions may name, as the JSON text that validation reads: sorted by name, the same for the same activities.
    pub fn registry_json(&self) -> String {
        let activities: Vec<Value> =
            self.by_name.values().map(|activity| activity.declaration.to_json()).collect();
        json!({ "activities": activities }).to_string()
    }

    async fn run(&self, call: Call) -> Result<Arc<Value>, Failure> {
        let Some(activity) = self.by_name.get(&call.activity) else {
            let message = format!("no activity {:?} is registered here", call.activity);
            return Err(Failure::for_good("ActivityNotFound", message));
        };
        let limit = time_left(&call)?;
        if let Some(schema) = &activity.input {
            schema.check(&call.input).map_err(|mismatch| input_invalid(&mismatch))?;
        }
        let invocation = Invocation { input: call.input, metadata: call.metadata };
        let running = caught(async { (activity.handler)(invocation).await });
        let output = match tokio::time::timeout(limit, running).await {
            Ok(Ok(answer)) => answer?,
            Ok(Err(_)) => {
                // What it said is on standard error. It may quote the input, so it is not kept.
                let message = format!("activity {:?} panicked", call.activity);
                return Err(Failure::retryable("ActivityPanicked", message).with_outcome_unknown());
            }
            Err(_) => {
                let message =
                    format!("activity {:?} took longer than {} ms", call.activity, limit.as_millis());
                return Err(Failure::retryable("AttemptTimeout", message).with_outcome_unknown());
            }
        };
        if let Some(schema) = &activity.output {
            let invalid = |mismatch| Failure::for_good("OutputInvalid", format!("the output at {mismatch}"));
            schema.check(&output).map_err(invalid)?;
        }
        Ok(output)
    }
}

impl Transport for Activities {
    async fn deliver(&self, call: Call) -> Answer {
        match self.run(call).await {
            Ok(output) => Answer::Completed(output),
            Err(failure) => Answer::Failed(failure),
        }
    }
}

impl fmt::Debug for Activities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

/// An input that an activity cannot work with; `mismatch` says where and why.
pub(super) fn input_invalid(mismatch: &str) -> Failure {
    Failure::for_good("InputInvalid", format!("the input at {mismatch}"))
}

/// This delivery's limit: its own, or what is left of the whole call when it was sent.
fn time_left(call: &Call) -> Result<Duration, Failure> {
    let own = call.attempt_timeout_ms;
    let Some(deadline) = call.metadata.deadline_epoch_ms else { return Ok(Duration::from_millis(own)) };
    let left = deadline.saturating_sub(call.metadata.dispatched_at_epoch_ms);
    match u64::try_from(left) {
        Ok(left) if left > 0 => Ok(Duration::from_millis(own.min(left))),
        _ => Err(Failure::for_good(
            "DeadlineExceeded",
            "the deadline had passed before the activity was called",
        )),
    }
}

/// Polls a future and gives back its panic. A future that panicked is not polled again.
async fn caught<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    // What a panic leaves half done inside the future is dropped with it; nothing else is shared with the handler but what it
    // brought itself.
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => std::task::Poll::Ready(Err(panic)),
    })
    .await
}

#[cfg(test)]
mod tests;
