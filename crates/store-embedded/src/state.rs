//! The state that readers and the committer share: the engine, or the reason why it is closed.
//!
//! Only the committer changes the state.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use abide_store::change_notify::ChangeNotifier;

use crate::engine::Engine;
use crate::folder::{StoreFolder, free_bytes};
use crate::options::EmbeddedOptions;

pub(crate) struct StoreShared {
    pub folder: StoreFolder,
    pub options: EmbeddedOptions,
    pub change_notifier: ChangeNotifier,
    pub state: RwLock<EngineState>,
    /// The fault to inject into the next group: it fails after it was applied (true) or before (false).
    #[cfg(feature = "faults")]
    pub next_group_fault: std::sync::Mutex<Option<bool>>,
}

#[derive(Clone)]
pub(crate) enum EngineState {
    Open(Arc<Engine>),
    /// Background work failed; durable rows can be read.
    ReadOnly(Arc<Engine>, String),
    /// The outcome of the last group is unknown, or the engine could not be opened.
    Closed {
        reason: String,
        /// True if reopening may help without an operator.
        recoverable: bool,
    },
}

/// The reason of a read-only store.
pub(crate) const BACKGROUND_FAILED: &str =
    "a background flush or compaction failed; read-only until reopened";

impl StoreShared {
    /// The present state. No reader holds the lock while it uses an engine, so changing the state never waits for a
    /// reader.
    pub(crate) fn state(&self) -> EngineState {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_state(&self, state: EngineState) {
        let previous = {
            let mut current = self.state.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, state)
        };
        // Closing an engine waits for its workers, so it must not happen under the lock.
        drop(previous);
    }

    /// Returns a reason if there is not enough free disk space for commits.
    pub(crate) fn disk_full_reason(&self) -> Option<String> {
        let reserve = self.options.disk_reserve_bytes;
        match free_bytes(self.folder.path()) {
            Ok(free) if free >= reserve => None,
            Ok(free) => {
                Some(format!("the disk is full: {free} bytes are free, and {reserve} are kept in reserve"))
            }
            Err(error) => Some(format!("cannot read free disk space: {error}")),
        }
    }
}

/// The time between attempts to reopen an engine that failed: doubled by every failure, up to eight seconds.
#[derive(Default)]
pub(crate) struct ReopenBackoff {
    pub failures: u32,
    last: Option<Instant>,
}

#[expect(clippy::disallowed_methods, reason = "how long a disk is left alone is measured in real time")]
impl ReopenBackoff {
    /// Returns true if it is time for another attempt, and records that it starts.
    pub(crate) fn start_attempt_if_due(&mut self) -> bool {
        let backoff = Duration::from_millis(250) * (1 << self.failures.min(5));
        let now = Instant::now();
        if self.failures > 0 && self.last.is_some_and(|last| now.duration_since(last) < backoff) {
            return false;
        }
        self.last = Some(now);
        true
    }
}
