//! Builds a receiver from a store, a clock, options, and handlers by name. It knows nothing of calls.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use abide_store::rows::{Partition, PartitionError, PrivateRows};

use crate::clock::ReceiverClock;
use crate::handler::{DynHandler, Handler};
use crate::handler_rows::HandlerRows;
use crate::idempotency::IdempotencyRecords;
use crate::options::ReceiverOptions;
use crate::receiver::Receiver;

const NAME_CHARS_MAX: usize = 128;

/// Why a handler cannot be registered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HandlerRegisterError {
    #[error("duplicate handler for activity {activity:?}")]
    Duplicate { activity: String },
    #[error("invalid activity name: it has {chars} characters, but must have 1 to {NAME_CHARS_MAX}")]
    InvalidName { chars: usize },
}

/// Why a receiver cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReceiverOpenError {
    #[error(transparent)]
    Partition(#[from] PartitionError),
    #[error(transparent)]
    Register(#[from] HandlerRegisterError),
    #[error("cannot open the receiver's records: {reason}")]
    Store { reason: String },
}

/// Builder of a [`Receiver`].
pub struct ReceiverBuilder<S> {
    store: Arc<S>,
    clock: ReceiverClock,
    options: ReceiverOptions,
    handlers: BTreeMap<String, Arc<dyn DynHandler>>,
    register_error: Option<HandlerRegisterError>,
}

impl<S> fmt::Debug for ReceiverBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverBuilder").field("handlers", &self.handlers.keys()).finish_non_exhaustive()
    }
}

impl<S: PrivateRows + 'static> Receiver<S> {
    /// A receiver that keeps its records in this store.
    pub fn builder(store: Arc<S>, clock: ReceiverClock) -> ReceiverBuilder<S> {
        ReceiverBuilder {
            store,
            clock,
            options: ReceiverOptions::default(),
            handlers: BTreeMap::new(),
            register_error: None,
        }
    }
}

impl<S: PrivateRows + 'static> ReceiverBuilder<S> {
    #[must_use]
    pub fn options(self, options: ReceiverOptions) -> Self {
        Self { options, ..self }
    }

    /// Registers the handler of an activity. [`Self::open`] returns the first error of a registration.
    #[must_use]
    pub fn handler(mut self, activity: &str, handler: impl Handler) -> Self {
        let chars = activity.chars().count();
        if chars == 0 || chars > NAME_CHARS_MAX {
            self.register_error.get_or_insert(HandlerRegisterError::InvalidName { chars });
        } else if self.handlers.insert(activity.to_owned(), Arc::new(handler)).is_some() {
            self.register_error
                .get_or_insert(HandlerRegisterError::Duplicate { activity: activity.to_owned() });
        }
        self
    }

    /// The handlers' own rows, for handlers that read them.
    pub fn handler_rows(&self) -> Result<HandlerRows<S>, PartitionError> {
        Ok(HandlerRows::new(Arc::clone(&self.store), Partition::new(&self.options.partition)?))
    }

    /// Opens the receiver as a new incarnation: claims that an earlier process left behind are void from now on.
    pub async fn open(self) -> Result<Receiver<S>, ReceiverOpenError> {
        if let Some(error) = self.register_error {
            return Err(error.into());
        }
        let Self { store, clock, options, handlers, register_error: _ } = self;
        let records = IdempotencyRecords::open(store, Partition::new(&options.partition)?).await;
        let records = records.map_err(|error| ReceiverOpenError::Store { reason: format!("{error:?}") })?;
        Ok(Receiver::new(records, clock, options, handlers))
    }
}
