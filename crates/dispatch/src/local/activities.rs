//! The registry of local activities, and one attempt of a call: checked, limited in time, and isolated from panics.
//!
//! Reads no clock: the call itself says whether its deadline has passed. Decides nothing about retries.

use std::any::Any;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;

use serde_json::Value;

use crate::contract::{ActivityContract, ContractError};
use crate::declaration::{ActivityDeclaration, registry_json};
use crate::http::TlsError;
use crate::metadata::Metadata;
use crate::transport::{ActivityTransport, AttemptResult, CallAttempt, CallFailure};

/// The arguments of a local activity.
#[derive(Clone, PartialEq, Eq)]
pub struct LocalInvocation {
    /// The input; it matches the declared schema.
    pub input: Arc<Value>,
    pub metadata: Metadata,
}

impl fmt::Debug for LocalInvocation {
    /// The input may hold resolved secrets, so it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalInvocation").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

/// Why an activity cannot be registered.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum LocalRegisterError {
    /// There is already an activity with this name.
    #[error("activity {activity:?} is already registered")]
    Duplicate { activity: String },
    /// The declaration is invalid.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// A built-in activity needs TLS, which cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

type LocalHandlerFuture = Pin<Box<dyn Future<Output = Result<Arc<Value>, CallFailure>> + Send>>;

struct LocalActivity {
    contract: ActivityContract,
    handler: Box<dyn Fn(LocalInvocation) -> LocalHandlerFuture + Send + Sync>,
}

/// Activities that are called in process.
#[derive(Default)]
pub struct LocalActivities {
    by_name: BTreeMap<String, LocalActivity>,
}

impl LocalActivities {
    /// Registers an activity.
    ///
    /// The handler is an async function. Its future is dropped when the attempt is cancelled or times out; there is no
    /// other sign of cancellation. Work that must not be interrupted belongs in a task of its own.
    pub fn register<H, F>(
        &mut self,
        declaration: ActivityDeclaration,
        handler: H,
    ) -> Result<(), LocalRegisterError>
    where
        H: Fn(LocalInvocation) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Arc<Value>, CallFailure>> + Send + 'static,
    {
        let name = declaration.name.clone();
        let contract = ActivityContract::new(declaration)?;
        let handler = Box::new(move |invocation| Box::pin(handler(invocation)) as LocalHandlerFuture);
        match self.by_name.entry(name) {
            Entry::Occupied(entry) => Err(LocalRegisterError::Duplicate { activity: entry.key().clone() }),
            Entry::Vacant(entry) => {
                entry.insert(LocalActivity { contract, handler });
                Ok(())
            }
        }
    }

    /// True if there is an activity with this name.
    pub fn contains(&self, activity: &str) -> bool {
        self.by_name.contains_key(activity)
    }

    /// The activities that definitions may use, as the JSON text that validation reads. Sorted by name, so the same
    /// activities always give the same text.
    pub fn registry_json(&self) -> String {
        registry_json(self.declarations())
    }

    /// The declarations of all activities, sorted by name.
    pub fn declarations(&self) -> impl Iterator<Item = &ActivityDeclaration> {
        self.by_name.values().map(|activity| activity.contract.declaration())
    }

    async fn run_handler(&self, call: CallAttempt) -> Result<Arc<Value>, CallFailure> {
        let Some(activity) = self.by_name.get(&call.activity) else {
            let message = format!("unknown activity {:?}", call.activity);
            return Err(CallFailure::permanent("ActivityNotFound", message).with_not_sent());
        };
        let limit = call.time_left()?;
        activity.contract.check_input(&call.input)?;
        let invocation = LocalInvocation { input: call.input, metadata: call.metadata };
        let running = catch_panic(async { (activity.handler)(invocation).await });
        let output = match tokio::time::timeout(limit, running).await {
            Ok(Ok(result)) => result?,
            Ok(Err(_)) => {
                // The panic message is on standard error. It may quote the input, so it is not stored.
                let message = format!("activity {:?} panicked", call.activity);
                return Err(CallFailure::retryable("ActivityPanicked", message).with_outcome_unknown());
            }
            Err(_) => {
                let message =
                    format!("activity {:?} timed out after {} ms", call.activity, limit.as_millis());
                return Err(CallFailure::retryable("AttemptTimeout", message).with_outcome_unknown());
            }
        };
        activity.contract.check_output(&output)?;
        Ok(output)
    }
}

impl ActivityTransport for LocalActivities {
    async fn run_attempt(&self, call: CallAttempt) -> AttemptResult {
        match self.run_handler(call).await {
            Ok(output) => AttemptResult::Completed(output),
            Err(failure) => AttemptResult::Failed(failure),
        }
    }
}

impl fmt::Debug for LocalActivities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

/// Polls a future and returns its panic as an error. A future that panicked is not polled again.
async fn catch_panic<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    // A panic may leave the inside of the future half done, but the future is dropped. Nothing else is shared with the
    // handler, except what it captured itself.
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => std::task::Poll::Ready(Err(panic)),
    })
    .await
}

#[cfg(test)]
mod tests;
