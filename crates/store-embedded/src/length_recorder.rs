//! Records on a thread of its own how far the journals are on the disk, without a cost for commits.
//!
//! ```text
//!  committer: group begins ─► write, fdatasync ─► group is durable ─► bytes since the last record
//!                                                                          │ a second later, or at one MiB
//!                                                                          ▼
//!  recorder:                 read on in the journals ─► wait for the group in progress ─► write the record, fdatasync
//! ```
//!
//! The committer only changes two numbers and never waits. A record names only batches of groups that were synced:
//! after reading, the recorder waits for the end of the group in progress, if there is one. After a group that failed,
//! it records nothing until the engine is reopened.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::journal_follower::JournalFollower;
use crate::options::SyncMode;
use crate::synced_lengths::SyncedLengths;

/// The longest time and the most bytes between two records. What a crash can cut off a journal unnoticed is bounded by
/// both; docs/formats/embedded.md states the bound.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);
const RECORD_BYTES: u64 = 1024 * 1024;

/// The thread, and what the committer tells it. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct LengthRecorder {
    progress: Arc<CommitProgress>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct CommitProgress {
    /// Odd while a group is written; raised when it begins and when it is durable.
    group_phase: AtomicU64,
    /// Bytes of durable groups that no record names.
    unrecorded_bytes: AtomicU64,
    ended: AtomicBool,
    /// Why the last record could not be written.
    failure: Mutex<Option<String>>,
}

impl LengthRecorder {
    pub(crate) fn start(
        follower: JournalFollower,
        synced: SyncedLengths,
        sync: SyncMode,
    ) -> std::io::Result<Self> {
        let progress = Arc::new(CommitProgress::default());
        let recorder = Recorder { progress: Arc::clone(&progress), follower, synced, sync };
        let thread = std::thread::Builder::new().name("abide-recorder".to_owned());
        Ok(Self { progress, thread: Some(thread.spawn(move || recorder.run())?) })
    }

    /// The committer begins to write a group.
    pub(crate) fn group_begins(&self) {
        self.progress.group_phase.fetch_add(1, Ordering::SeqCst);
    }

    /// The group is durable. It has about this many bytes in the journal.
    pub(crate) fn group_is_durable(&self, bytes: u64) {
        self.progress.group_phase.fetch_add(1, Ordering::SeqCst);
        let before = self.progress.unrecorded_bytes.fetch_add(bytes, Ordering::SeqCst);
        let begins = before == 0;
        let is_due = before < RECORD_BYTES && before + bytes >= RECORD_BYTES;
        if let Some(thread) = self.thread.as_ref().filter(|_| begins || is_due) {
            thread.thread().unpark();
        }
    }

    /// The group failed: nothing is recorded any more.
    pub(crate) fn group_failed(&self) {
        self.progress.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Why the last record could not be written; the next one is tried a second later.
    pub(crate) fn failure(&self) -> Option<String> {
        self.progress.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for LengthRecorder {
    fn drop(&mut self) {
        self.progress.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

struct Recorder {
    progress: Arc<CommitProgress>,
    follower: JournalFollower,
    synced: SyncedLengths,
    sync: SyncMode,
}

impl Recorder {
    fn run(mut self) {
        while self.wait_until_due() {
            self.progress.unrecorded_bytes.store(0, Ordering::SeqCst);
            let failure = match self.record() {
                Ok(true) => None,
                // The store ends, or a group has failed: the next open measures the journals anew.
                Ok(false) => return,
                Err(error) => {
                    self.progress.unrecorded_bytes.fetch_add(1, Ordering::SeqCst);
                    Some(format!("the synced length of the journal cannot be recorded: {error}"))
                }
            };
            *self.progress.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        }
    }

    /// Waits until a record is due; false if the store ends.
    #[expect(clippy::disallowed_methods, reason = "how old a record may be is measured in real time")]
    fn wait_until_due(&self) -> bool {
        let unrecorded = || self.progress.unrecorded_bytes.load(Ordering::SeqCst);
        let ended = || self.progress.ended.load(Ordering::SeqCst);
        while unrecorded() == 0 {
            if ended() {
                return false;
            }
            std::thread::park();
        }
        // Commits that are not synced one by one are not to be slowed down by the bytes either.
        let bytes_max = if self.sync == SyncMode::EveryCommit { RECORD_BYTES } else { u64::MAX };
        let began = Instant::now();
        while unrecorded() < bytes_max {
            if ended() {
                return false;
            }
            let Some(left) = RECORD_INTERVAL.checked_sub(began.elapsed()).filter(|left| !left.is_zero())
            else {
                break;
            };
            std::thread::park_timeout(left);
        }
        !ended()
    }

    /// Measures the journals and writes the record; false if the measured bytes will not become durable.
    fn record(&mut self) -> std::io::Result<bool> {
        self.follower.follow()?;
        // A group in progress may have been read; when it ends, its sync has covered all that was read.
        let phase = self.progress.group_phase.load(Ordering::SeqCst);
        while phase % 2 == 1 && self.progress.group_phase.load(Ordering::SeqCst) == phase {
            if self.progress.ended.load(Ordering::SeqCst) {
                return Ok(false);
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        if self.sync != SyncMode::EveryCommit {
            self.follower.sync_newest()?;
        }
        self.synced.write(self.follower.lengths())?;
        Ok(true)
    }
}
