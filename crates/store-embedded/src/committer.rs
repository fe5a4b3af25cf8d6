//! The one thread that writes: it takes whatever waits, makes one group of it, and answers when the group is durable.
//!
//! It never lingers for more: while one group is being synced the next one gathers by itself. It also decides what a failure means.
//!
//! ```text
//!            commit fails                                background work fails
//!  Open ─────────────────► Closed: nothing is answered     Open ─► ReadOnly: what is durable can be read
//!    ▲                        │ disk was full and has room again, or reopened by hand
//!    └────────────────────────┘
//! ```
//! After a failed write or sync the last group may or may not be on the disk. Until the engine has been opened anew nobody can know,
//! so not even reads are answered: a reader would take the old state for the outcome.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use abide_store::notice::Notices;
use abide_store::public::{PublicWrite, PutError, TableSchema};
use abide_store::rows::{Batch, CommitOutcome, Partition, StoreError};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::engine::{Engine, io_error};
use crate::folder::{Folder, OpenError, free_bytes, is_disk_full};
use crate::group::{Group, Heads};
use crate::options::Options;

/// What waits for the committer.
pub(crate) enum Work {
    Commit {
        partition: Partition,
        batch: Batch,
        reply: oneshot::Sender<CommitOutcome>,
    },
    Put {
        table: &'static TableSchema,
        writes: Vec<PublicWrite>,
        reply: oneshot::Sender<Result<(), PutError>>,
    },
    /// Open the engine anew, if it is closed.
    Reopen {
        reply: oneshot::Sender<Result<(), OpenError>>,
    },
    /// Somebody wanted to read while the engine was closed.
    Revive,
}

/// Work and the room in the queue that it takes until it is answered.
pub(crate) struct Request {
    pub work: Work,
    pub room: Option<OwnedSemaphorePermit>,
}

/// What readers and the committer share.
pub(crate) struct Shared {
    pub folder: Folder,
    pub options: Options,
    pub notices: Notices,
    pub state: RwLock<State>,
}

pub(crate) enum State {
    Open(Engine),
    /// Background work failed; what is durable can be read.
    ReadOnly(Engine, String),
    /// The last group's outcome is unknown.
    Closed {
        reason: String,
        disk_full: bool,
    },
}

impl Shared {
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
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

/// The most rows and bytes of one group, so that neither memory nor the wait for one sync grows without bound.
const GROUP_REQUESTS_MAX: usize = 4_096;
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Full write buffers at which the committer waits for the engine; the engine itself would stall at four.
const FULL_BUFFERS_MAX: usize = 3;

/// Runs until every sender is gone, then closes the engine in order.
pub(crate) fn run(shared: &Arc<Shared>, queue: &mut mpsc::Receiver<Request>) {
    let mut committer = Committer { shared, heads: Heads::default(), counter: 0 };
    while let Some(first) = queue.blocking_recv() {
        let mut bytes = size(&first.work);
        let mut waiting = vec![first];
        while waiting.len() < GROUP_REQUESTS_MAX
            && bytes < GROUP_BYTES_MAX
            && let Ok(request) = queue.try_recv()
        {
            bytes += size(&request.work);
            waiting.push(request);
        }
        committer.serve(waiting);
    }
    committer.close();
}

fn size(work: &Work) -> usize {
    match work {
        Work::Commit { batch, .. } => batch.bytes(),
        Work::Put { writes, .. } => writes.iter().map(put_bytes).sum(),
        Work::Reopen { .. } | Work::Revive => 0,
    }
}

/// Bytes of a public write, its index entries counted as a fixed share.
pub(crate) fn put_bytes(write: &PublicWrite) -> usize {
    match write {
        PublicWrite::Put(row) => row.bytes() + 512,
        PublicWrite::Delete(_) => 512,
    }
}

struct Committer<'s> {
    shared: &'s Arc<Shared>,
    heads: Heads,
    counter: u64,
}

/// An answer that is given when the group is durable.
enum Pending {
    Commit(Partition, CommitOutcome, oneshot::Sender<CommitOutcome>),
    Put(Result<(), PutError>, oneshot::Sender<Result<(), PutError>>),
}

impl Committer<'_> {
    fn serve(&mut self, waiting: Vec<Request>) {
        let (mut works, mut rooms) = (Vec::with_capacity(waiting.len()), Vec::with_capacity(waiting.len()));
        for request in waiting {
            rooms.push(request.room);
            match request.work {
                Work::Reopen { reply } => drop(reply.send(self.reopen())),
                Work::Revive => {}
                work => works.push(work),
            }
        }
        self.reopen_if_the_disk_has_room();
        if works.is_empty() {
            return;
        }
        match self.refusal() {
            Some(reason) => works.into_iter().for_each(|work| refuse(work, &reason)),
            None => self.commit(works),
        }
        drop(rooms);
    }

    /// Why nothing can be written now.
    fn refusal(&self) -> Option<String> {
        match &*self.shared.state() {
            State::Closed { reason, .. } | State::ReadOnly(_, reason) => Some(reason.clone()),
            State::Open(_) => self.shared.disk_full(),
        }
    }

    fn commit(&mut self, works: Vec<Work>) {
        let state = self.shared.state();
        let State::Open(engine) = &*state else { return };
        let mut group = Group::new(engine, &mut self.heads);
        let mut pending = Vec::with_capacity(works.len());
        for work in works {
            match work {
                Work::Commit { partition, batch, reply } => {
                    self.counter += 1;
                    let outcome = group.add(&partition, batch, self.counter).unwrap_or_else(|error| {
                        CommitOutcome::Unavailable {
                            reason: format!("a row that must be checked cannot be read: {error}"),
                        }
                    });
                    pending.push(Pending::Commit(partition, outcome, reply));
                }
                Work::Put { table, writes, reply } => {
                    let put = group.put(table, writes).map_err(|error| {
                        let reason = format!("a row to be replaced cannot be read: {error}");
                        PutError::Store(StoreError::Unavailable { reason })
                    });
                    pending.push(Pending::Put(put, reply));
                }
                Work::Reopen { .. } | Work::Revive => {}
            }
        }
        let changes = group.into_changes();
        if !wait_for_buffers(engine) {
            drop(state);
            self.heads = Heads::default();
            let reason = self.background_work_failed();
            return pending.into_iter().for_each(|answer| answer.failed(&reason, false));
        }
        match engine.apply(changes, self.shared.options.sync) {
            Ok(()) => {
                drop(state);
                pending.into_iter().for_each(|answer| answer.durable(self.shared));
            }
            Err(error) => {
                drop(state);
                self.heads = Heads::default();
                // The engine looks whether it is poisoned before it writes anything.
                if matches!(error, fjall::Error::Poisoned) {
                    let reason = self.background_work_failed();
                    pending.into_iter().for_each(|answer| answer.failed(&reason, false));
                } else {
                    let reason = self.write_failed(&error);
                    pending.into_iter().for_each(|answer| answer.failed(&reason, true));
                }
            }
        }
    }

    /// Nobody can tell whether the last group is on the disk.
    fn write_failed(&self, error: &fjall::Error) -> String {
        let reason =
            format!("a write or sync failed, so the store is closed until it is opened again: {error}");
        let disk_full = io_error(error).is_some_and(is_disk_full);
        self.shared.set(State::Closed { reason: reason.clone(), disk_full });
        reason
    }

    /// A flush or a compaction failed. If that was for want of room, opening the engine anew is the cure.
    fn background_work_failed(&self) -> String {
        let reason =
            "background work of the engine failed, so the store takes no writes until it is opened again";
        let disk_full = self.shared.disk_full();
        let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
        let closed = State::Closed { reason: reason.to_owned(), disk_full: disk_full.is_some() };
        *state = match std::mem::replace(&mut *state, closed) {
            State::Open(engine) if disk_full.is_none() => State::ReadOnly(engine, reason.to_owned()),
            State::Open(_) => State::Closed { reason: reason.to_owned(), disk_full: true },
            other => other,
        };
        reason.to_owned()
    }

    fn reopen_if_the_disk_has_room(&mut self) {
        let full = matches!(&*self.shared.state(), State::Closed { disk_full: true, .. });
        if full && self.shared.disk_full().is_none() {
            // A failure leaves the store closed, with the reason it has; the next request tries again.
            drop(self.reopen());
        }
    }

    fn reopen(&mut self) -> Result<(), OpenError> {
        if matches!(&*self.shared.state(), State::Open(_)) {
            return Ok(());
        }
        let disk_full = matches!(&*self.shared.state(), State::Closed { disk_full: true, .. });
        // The old engine has to let go of its files first.
        self.shared.set(State::Closed { reason: "it is being opened again".to_owned(), disk_full });
        match self.shared.folder.open_engine(&self.shared.options) {
            Ok((engine, _)) => {
                self.heads = Heads::default();
                self.counter = 0;
                self.shared.set(State::Open(engine));
                Ok(())
            }
            Err(error) => {
                self.shared.set(State::Closed { reason: error.to_string(), disk_full });
                Err(error)
            }
        }
    }

    fn close(&self) {
        let reason = "the store was closed".to_owned();
        let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
        let last = std::mem::replace(&mut *state, State::Closed { reason, disk_full: false });
        if let State::Open(engine) = last {
            let in_order = !engine.is_poisoned();
            drop(engine);
            if in_order {
                // Without the mark the next open checks and rewrites the journal: slower, not worse.
                drop(self.shared.folder.mark_clean());
            }
        }
    }
}

/// Waits until the engine has room for another group; false if it never will.
fn wait_for_buffers(engine: &Engine) -> bool {
    while engine.full_buffers() >= FULL_BUFFERS_MAX {
        if engine.is_poisoned() {
            return false;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
    true
}

fn refuse(work: Work, reason: &str) {
    let reason = reason.to_owned();
    match work {
        Work::Commit { reply, .. } => drop(reply.send(CommitOutcome::Unavailable { reason })),
        Work::Put { reply, .. } => drop(reply.send(Err(StoreError::Unavailable { reason }.into()))),
        Work::Reopen { .. } | Work::Revive => {}
    }
}

impl Pending {
    /// The group is durable: the answer holds. Who stopped waiting is not told.
    fn durable(self, shared: &Shared) {
        match self {
            Self::Commit(partition, outcome, reply) => {
                if matches!(outcome, CommitOutcome::Committed(_)) {
                    shared.notices.announce(&partition);
                }
                drop(reply.send(outcome));
            }
            Self::Put(result, reply) => drop(reply.send(result)),
        }
    }

    /// The group failed. What would have been written may have been (`unknown`) or not; what would not is surely not.
    fn failed(self, reason: &str, unknown: bool) {
        let reason = reason.to_owned();
        match self {
            Self::Commit(_, outcome, reply) => {
                let committed = matches!(outcome, CommitOutcome::Committed(_));
                drop(reply.send(if committed && unknown {
                    CommitOutcome::Unknown { reason }
                } else {
                    CommitOutcome::Unavailable { reason }
                }));
            }
            Self::Put(_, reply) => drop(reply.send(Err(StoreError::Unavailable { reason }.into()))),
        }
    }
}
