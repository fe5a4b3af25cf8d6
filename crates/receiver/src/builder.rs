//! How a receiver is put together: a store, a clock, settings, and handlers by name.
//!
//! Knows nothing of calls.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use abide_store::rows::{Partition, PartitionError, PrivateRows};

use crate::clock::Clock;
use crate::effects::Effects;
use crate::handler::{AnyHandler, Handler};
use crate::options::Options;
use crate::receiver::Receiver;
use crate::records::Records;

/// Characters of an activity's name.
const NAME_CHARS_MAX: usize = 128;

/// Why a handler cannot be registered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegisterError {
    /// There is one of this name already.
    #[error("there is a handler for {activity:?} already")]
    Duplicate {
        /// Which.
        activity: String,
    },
    /// Nobody could name it.
    #[error("an activity's name has 1 to {NAME_CHARS_MAX} characters, not {chars}")]
    Name {
        /// How many it has.
        chars: usize,
    },
}

/// Why a receiver cannot begin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The partition has no name.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// A handler.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The store.
    #[error("the receiver's rows cannot be used: {reason}")]
    Store {
        /// What it said.
        reason: String,
    },
}

/// A receiver to be put together.
pub struct Builder<S> {
    store: Arc<S>,
    clock: Clock,
    options: Options,
    handlers: BTreeMap<String, Arc<dyn AnyHandler>>,
    wrong: Option<RegisterError>,
}

impl<S> fmt::Debug for Builder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("handlers", &self.handlers.keys()).finish_non_exhaustive()
    }
}

impl<S: PrivateRows + 'static> Receiver<S> {
    /// A receiver that keeps its records in this store.
    pub fn builder(store: Arc<S>, clock: Clock) -> Builder<S> {
        Builder { store, clock, options: Options::default(), handlers: BTreeMap::new(), wrong: None }
    }
}

impl<S: PrivateRows + 'static> Builder<S> {
    /// With these settings.
    #[must_use]
    pub fn options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// With a handler for an activity. What is wrong with it is told by [`Self::open`].
    #[must_use]
    pub fn handler(mut self, activity: &str, handler: impl Handler) -> Self {
        let chars = activity.chars().count();
        if chars == 0 || chars > NAME_CHARS_MAX {
            self.wrong.get_or_insert(RegisterError::Name { chars });
        } else if self.handlers.insert(activity.to_owned(), Arc::new(handler)).is_some() {
            self.wrong.get_or_insert(RegisterError::Duplicate { activity: activity.to_owned() });
        }
        self
    }

    /// The rows of the handlers' own, for handlers that read them.
    pub fn effects(&self) -> Result<Effects<S>, PartitionError> {
        Ok(Effects::new(Arc::clone(&self.store), Partition::new(&self.options.partition)?))
    }

    /// Begins: whatever an earlier process left claimed is free from now on.
    pub async fn open(self) -> Result<Receiver<S>, OpenError> {
        if let Some(wrong) = self.wrong {
            return Err(wrong.into());
        }
        let Self { store, clock, options, handlers, wrong: _ } = self;
        let records = Records::open(store, Partition::new(&options.partition)?).await;
        let records = records.map_err(|trouble| OpenError::Store { reason: format!("{trouble:?}") })?;
        Ok(Receiver::new(records, clock, options, handlers))
    }
}
