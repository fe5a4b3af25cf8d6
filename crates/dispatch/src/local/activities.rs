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

use serde_json::Value;

use crate::contract::{Contract, ContractError};
use crate::declaration::{Declaration, registry_json};
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
    /// The declaration is none.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// A built-in activity needs TLS, and has none.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

type Running = Pin<Box<dyn Future<Output = Result<Arc<Value>, Failure>> + Send>>;

struct Activity {
    contract: Contract,
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
        let contract = Contract::new(declaration)?;
        let handler = Box::new(move |invocation| Box::pin(handler(invocation)) as Running);
        match self.by_name.entry(name) {
            Entry::Occupied(entry) => Err(RegisterError::Duplicate { activity: entry.key().clone() }),
            Entry::Vacant(entry) => {
                entry.insert(Activity { contract, handler });
                Ok(())
            }
        }
    }

    /// Whether there is an activity of this name.
    pub fn contains(&self, activity: &str) -> bool {
        self.by_name.contains_key(activity)
    }

    /// What definitions may name, as the JSON text that validation reads: sorted by name, the same for the same activities.
    pub fn registry_json(&self) -> String {
        registry_json(self.declarations())
    }

    /// What is declared of each activity, by name.
    pub fn declarations(&self) -> impl Iterator<Item = &Declaration> {
        self.by_name.values().map(|activity| activity.contract.declaration())
    }

    async fn run(&self, call: Call) -> Result<Arc<Value>, Failure> {
        let Some(activity) = self.by_name.get(&call.activity) else {
            let message = format!("no activity {:?} is registered here", call.activity);
            return Err(Failure::for_good("ActivityNotFound", message).with_not_sent());
        };
        let limit = call.time_left()?;
        activity.contract.check_input(&call.input)?;
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
        activity.contract.check_output(&output)?;
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
