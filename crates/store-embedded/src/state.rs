//! What readers and the committer share: the engine, or why there is none.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use abide_store::notice::Notices;

use crate::engine::Engine;
use crate::folder::{Folder, free_bytes};
use crate::options::Options;

/// What readers and the committer share.
pub(crate) struct Shared {
    pub folder: Folder,
    pub options: Options,
    pub notices: Notices,
    pub state: RwLock<State>,
    /// What is to come of the next group: failed after it was applied, or before.
    #[cfg(feature = "faults")]
    pub fault: std::sync::Mutex<Option<bool>>,
}

#[derive(Clone)]
pub(crate) enum State {
    Open(Arc<Engine>),
    /// Background work failed; what is durable can be read.
    ReadOnly(Arc<Engine>, String),
    /// The last group's outcome is unknown, or the engine is not there.
    Closed {
        reason: String,
        /// Whether it is worth trying again by itself.
        heals: bool,
    },
}

/// Why a store can be read and not written.
pub(crate) const BACKGROUND_FAILED: &str =
    "background work of the engine failed, so the store takes no writes until it is opened again";

impl Shared {
    /// The state now. Nobody holds the lock while using an engine, so changing the state never waits for a reader.
    pub(crate) fn state(&self) -> State {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, state: State) {
        let before = {
            let mut now = self.state.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *now, state)
        };
        // Closing an engine waits for its workers: not under the lock.
        drop(before);
    }

    /// Why commits would fill the disk, if they would.
    pub(crate) fn disk_full(&self) -> Option<String> {
        let reserve = self.options.disk_reserve_bytes;
        match free_bytes(self.folder.path()) {
            Ok(free) if free >= reserve => None,
            Ok(free) => {
                Some(format!("the disk is full: {free} bytes are free and {reserve} are kept in reserve"))
            }
            Err(error) => Some(format!("the free disk space cannot be told: {error}")),
        }
    }
}

/// Time between attempts to open an engine that failed: doubled by every failure, up to eight seconds.
#[derive(Default)]
pub(crate) struct Pause {
    pub failures: u32,
    last: Option<Instant>,
}

#[expect(clippy::disallowed_methods, reason = "how long a disk is left alone is measured in real time")]
impl Pause {
    /// Whether it is time for another attempt; notes it if so.
    pub(crate) fn is_over(&mut self) -> bool {
        let length = Duration::from_millis(250) * (1 << self.failures.min(5));
        let now = Instant::now();
        if self.failures > 0 && self.last.is_some_and(|last| now.duration_since(last) < length) {
            return false;
        }
        self.last = Some(now);
        true
    }
}
