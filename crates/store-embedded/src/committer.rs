//! The committer, the only thread that writes: it takes all waiting requests, commits them as one group, and replies
//! when the group is durable.
//!
//! It never waits for more requests: while one group is synced, the next one accumulates in the queue. It also decides
//! what a failure means. It does not check preconditions itself; [`crate::group_commit`] does.
//!
//! ```text
//!  Open ── a flush or compaction failed ──► ReadOnly: rows are readable, no outcome is unknown ─┐
//!    │                                                                                          │ reopens by itself,
//!    ├── a write or sync met a full disk ─► Closed: no reads, no writes ────────────────────────┤ with backoff
//!    │                                                                                          ▼
//!    └── a write or sync failed ──────────► Closed: no reads, no writes ── reopen() or restart ► Open
//! ```
//! After a failed write or sync the last group may or may not be on the disk. This is unknown until the engine is
//! reopened, so not even reads are served: a reader would take the old state for the outcome.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use abide_store::public::{PublicPutError, PublicWrite, TableSchema};
use abide_store::rows::{Batch, CommitOutcome, Partition, StoreError};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::buffer_reclaimer::BufferReclaimer;
use crate::engine::{Engine, GroupChanges};
use crate::engine_error::io_error;
use crate::folder::{StoreOpenError, is_disk_full};
use crate::group_commit::{CommitGroup, HeadVersions};
use crate::pending_reply::PendingReply;
use crate::state::{BACKGROUND_FAILED, EngineState, ReopenBackoff, StoreShared};

/// A request to the committer.
pub(crate) enum CommitterRequest {
    Commit {
        partition: Partition,
        batch: Arc<Batch>,
        reply: oneshot::Sender<CommitOutcome>,
    },
    Put {
        table: &'static TableSchema,
        writes: Vec<PublicWrite>,
        reply: oneshot::Sender<Result<(), PublicPutError>>,
    },
    /// Reopens the engine, if it is closed.
    Reopen {
        reply: oneshot::Sender<Result<(), StoreOpenError>>,
    },
    /// Reopens the engine, if that may help: a read or a health check met an engine that is not usable.
    TryReopen,
}

/// A request, and the share of the queue that it holds until it is answered.
pub(crate) struct QueuedRequest {
    pub request: CommitterRequest,
    pub queue_permit: Option<OwnedSemaphorePermit>,
}

/// A put whose rows are not all written yet.
struct PartialPut {
    table: &'static TableSchema,
    writes: std::vec::IntoIter<PublicWrite>,
    reply: oneshot::Sender<Result<(), PublicPutError>>,
    /// Held until the put is answered.
    queue_permit: Option<OwnedSemaphorePermit>,
}

/// The most requests and bytes of one group, so that neither memory nor the wait for one sync grows without bound.
const GROUP_REQUESTS_MAX: usize = 4_096;
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The public rows in a group: a fixed number, plus one for so many rows of its commits. A public row is slow to write,
/// because of its index entries, and runs wait for commits but not for public rows. A run writes far fewer public rows
/// than other rows, so they keep up.
const GROUP_PUBLIC_ROWS: usize = 16;
const ROWS_PER_PUBLIC_ROW: usize = 4;

/// Runs until every sender is dropped, then closes the engine cleanly.
pub(crate) fn run(shared: &StoreShared, queue: &mut mpsc::Receiver<QueuedRequest>) {
    let engine = match shared.state() {
        EngineState::Open(engine) | EngineState::ReadOnly(engine, _) => Arc::downgrade(&engine),
        EngineState::Closed { .. } => Weak::new(),
    };
    let mut committer = Committer {
        shared,
        engine,
        head_versions: HeadVersions::default(),
        buffer_reclaimer: BufferReclaimer::new(),
        last_commit_number: 0,
        reopen_backoff: ReopenBackoff::default(),
        pending_puts: VecDeque::new(),
    };
    let ended = catch_unwind(AssertUnwindSafe(|| {
        loop {
            let mut waiting = Vec::new();
            if committer.pending_puts.is_empty() {
                let Some(first) = queue.blocking_recv() else { break };
                waiting.push(first);
            }
            let mut bytes = waiting.iter().map(|first| request_bytes(&first.request)).sum::<usize>();
            while waiting.len() < GROUP_REQUESTS_MAX
                && bytes < GROUP_BYTES_MAX
                && let Ok(request) = queue.try_recv()
            {
                bytes += request_bytes(&request.request);
                waiting.push(request);
            }
            committer.process(waiting);
        }
        committer.close();
    }));
    if ended.is_err() {
        let reason = "the committer thread panicked; restart the process".to_owned();
        shared.set_state(EngineState::Closed { reason, recoverable: false });
    }
}

fn request_bytes(request: &CommitterRequest) -> usize {
    match request {
        CommitterRequest::Commit { batch, .. } => batch.size_bytes(),
        CommitterRequest::Put { writes, .. } => writes.iter().map(public_write_bytes).sum(),
        CommitterRequest::Reopen { .. } | CommitterRequest::TryReopen => 0,
    }
}

/// The bytes of a public write, with a fixed allowance for its index entries.
pub(crate) fn public_write_bytes(write: &PublicWrite) -> usize {
    write.size_bytes() + 512
}

type QueuedCommit = (Partition, Arc<Batch>, oneshot::Sender<CommitOutcome>);

struct Committer<'s> {
    shared: &'s StoreShared,
    /// The engine that was opened last. Readers and backups may hold it after the state has dropped it.
    engine: Weak<Engine>,
    head_versions: HeadVersions,
    buffer_reclaimer: BufferReclaimer,
    last_commit_number: u64,
    reopen_backoff: ReopenBackoff,
    /// Puts with rows that wait for a group, in order of arrival.
    pending_puts: VecDeque<PartialPut>,
}

impl Committer<'_> {
    fn process(&mut self, waiting: Vec<QueuedRequest>) {
        let mut commits = Vec::with_capacity(waiting.len());
        let mut permits = Vec::with_capacity(waiting.len());
        for QueuedRequest { request, queue_permit } in waiting {
            match request {
                CommitterRequest::Commit { partition, batch, reply } => {
                    commits.push((partition, batch, reply));
                    permits.push(queue_permit);
                }
                CommitterRequest::Put { table, writes, reply } => {
                    self.pending_puts.push_back(PartialPut {
                        table,
                        writes: writes.into_iter(),
                        reply,
                        queue_permit,
                    });
                }
                CommitterRequest::Reopen { reply } => drop(reply.send(self.reopen())),
                CommitterRequest::TryReopen => {}
            }
        }
        self.reopen_if_recoverable();
        if commits.is_empty() && self.pending_puts.is_empty() {
            return;
        }
        match self.unavailable_reason() {
            Some(reason) => self.reject_all(commits, &reason),
            None => self.commit_group(commits, &mut permits),
        }
        drop(permits);
    }

    /// Replies to commits that were not tried, and to all pending puts.
    fn reject_all(&mut self, commits: Vec<QueuedCommit>, reason: &str) {
        for (_, _, reply) in commits {
            drop(reply.send(CommitOutcome::Unavailable { reason: reason.to_owned() }));
        }
        for put in self.pending_puts.drain(..) {
            drop(put.reply.send(Err(StoreError::Unavailable { reason: reason.to_owned() }.into())));
        }
    }

    /// The reason why nothing can be written now, if there is one.
    fn unavailable_reason(&self) -> Option<String> {
        match self.shared.state() {
            EngineState::Closed { reason, .. } | EngineState::ReadOnly(_, reason) => Some(reason),
            EngineState::Open(_) => self.shared.disk_full_reason(),
        }
    }

    fn commit_group(&mut self, commits: Vec<QueuedCommit>, permits: &mut Vec<Option<OwnedSemaphorePermit>>) {
        let EngineState::Open(engine) = self.shared.state() else { return };
        let mut group = CommitGroup::new(&engine, &mut self.head_versions);
        let mut pending = Vec::with_capacity(commits.len());
        for (partition, batch, reply) in commits {
            self.last_commit_number += 1;
            let outcome = group.add(&partition, &batch, self.last_commit_number).unwrap_or_else(|error| {
                CommitOutcome::Unavailable {
                    reason: format!("a row that must be checked cannot be read: {error}"),
                }
            });
            pending.push(PendingReply::Commit(partition, outcome, reply));
        }
        let mut left = GROUP_PUBLIC_ROWS + group.row_count() / ROWS_PER_PUBLIC_ROW;
        while left > 0
            && let Some(mut put) = self.pending_puts.pop_front()
        {
            let writes: Vec<PublicWrite> = put.writes.by_ref().take(left).collect();
            left -= writes.len();
            let result = group.put(put.table, writes).map_err(|error| {
                let reason = format!("a row to be replaced cannot be read: {error}");
                PublicPutError::Store(StoreError::Unavailable { reason })
            });
            if result.is_ok() && !put.writes.as_slice().is_empty() {
                self.pending_puts.push_front(put);
            } else {
                pending.push(PendingReply::Put(result, put.reply));
                permits.push(put.queue_permit);
            }
        }
        let changes = group.into_changes();
        let applied = match engine.wait_for_write_capacity() {
            true => self.apply(&engine, changes),
            false => Err(fjall::Error::Poisoned),
        };
        self.buffer_reclaimer.track_active(engine.active_buffers());
        drop(engine);
        match applied {
            Ok(()) => {
                self.reopen_backoff.failures = 0;
                pending.into_iter().for_each(|reply| reply.on_durable(self.shared));
            }
            // The engine checks that it is not poisoned before it writes anything.
            Err(fjall::Error::Poisoned) => {
                self.head_versions = HeadVersions::default();
                let reason = self.background_work_failed();
                pending.into_iter().for_each(|reply| reply.on_failed(&reason, false));
                self.reject_all(Vec::new(), &reason);
            }
            Err(error) => {
                self.head_versions = HeadVersions::default();
                let reason = self.write_failed(&error);
                pending.into_iter().for_each(|reply| reply.on_failed(&reason, true));
                self.reject_all(Vec::new(), &reason);
            }
        }
    }

    fn apply(&self, engine: &Engine, changes: GroupChanges) -> fjall::Result<()> {
        #[cfg(feature = "faults")]
        if let Some(applied) =
            self.shared.next_group_fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
        {
            if applied {
                engine.apply(changes, self.shared.options.sync)?;
            }
            return Err(std::io::Error::other("injected fault").into());
        }
        engine.apply(changes, self.shared.options.sync)
    }

    /// Closes the store: it is unknown if the last group is on the disk.
    fn write_failed(&self, error: &fjall::Error) -> String {
        let reason = format!("a write or sync failed; the store is closed until it is reopened: {error}");
        let recoverable = io_error(error).is_some_and(is_disk_full);
        self.shared.set_state(EngineState::Closed { reason: reason.clone(), recoverable });
        reason
    }

    /// Makes the store read-only: a flush or a compaction failed. No outcome is unknown, and reopening the engine may
    /// help.
    fn background_work_failed(&self) -> String {
        if let EngineState::Open(engine) = self.shared.state() {
            self.shared.set_state(EngineState::ReadOnly(engine, BACKGROUND_FAILED.to_owned()));
        }
        BACKGROUND_FAILED.to_owned()
    }

    /// Reopens the engine if that may help and the backoff is over.
    fn reopen_if_recoverable(&mut self) {
        let may_help = match self.shared.state() {
            EngineState::Open(_) => false,
            EngineState::ReadOnly(..) => true,
            EngineState::Closed { recoverable, .. } => recoverable,
        };
        if may_help && self.shared.disk_full_reason().is_none() && self.reopen_backoff.start_attempt_if_due()
        {
            // Counted even if it opens: only a commit shows that it works again.
            self.reopen_backoff.failures += 1;
            // A failure leaves the store as it is, with the reason; a later request tries again.
            drop(self.reopen());
        }
    }

    fn reopen(&mut self) -> Result<(), StoreOpenError> {
        let (readable, recoverable) = match self.shared.state() {
            EngineState::Open(engine) if !engine.is_poisoned() => return Ok(()),
            EngineState::Open(_) | EngineState::ReadOnly(..) => (true, true),
            EngineState::Closed { recoverable, .. } => (false, recoverable),
        };
        self.shared.set_state(EngineState::Closed { reason: "reopening".to_owned(), recoverable });
        if !wait_until_released(&self.engine) {
            // Another holder keeps the engine open, so durable rows stay readable; but not if an outcome is unknown.
            if let Some(engine) = self.engine.upgrade().filter(|_| readable) {
                self.shared.set_state(EngineState::ReadOnly(engine, BACKGROUND_FAILED.to_owned()));
            }
            return Err(StoreOpenError::InUse { folder: self.shared.folder.path().to_owned() });
        }
        match self.shared.folder.open_engine(&self.shared.options) {
            Ok((engine, _)) => {
                let engine = Arc::new(engine);
                self.head_versions = HeadVersions::default();
                self.last_commit_number = 0;
                self.engine = Arc::downgrade(&engine);
                self.shared.set_state(EngineState::Open(engine));
                Ok(())
            }
            Err(error) => {
                let temporary =
                    matches!(error, StoreOpenError::InUse { .. } | StoreOpenError::DiskFull { .. });
                let damaged = matches!(error, StoreOpenError::Damaged { .. });
                let recoverable = (recoverable || temporary) && !damaged;
                self.shared.set_state(EngineState::Closed { reason: error.to_string(), recoverable });
                Err(error)
            }
        }
    }

    fn close(&self) {
        let state = self.shared.state();
        self.shared
            .set_state(EngineState::Closed { reason: "the store was closed".to_owned(), recoverable: false });
        if let EngineState::Open(engine) = state {
            let clean = !engine.is_poisoned();
            drop(engine);
            if clean {
                // Without the marker the next open checks and rewrites the journal: slower, but not worse.
                drop(self.shared.folder.mark_clean());
            }
        }
    }
}

/// Waits until the old engine has closed its files, which must not be touched before; false if it has not. A reader
/// holds it only briefly, a backup for longer.
fn wait_until_released(engine: &Weak<Engine>) -> bool {
    (0..100).any(|_| {
        let released = engine.strong_count() == 0;
        if !released {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        released
    })
}
