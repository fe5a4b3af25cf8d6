//! The one thread that writes: it takes whatever waits, makes one group of it, and answers when the group is durable.
//!
//! It never lingers for more: while one group is being synced the next one gathers by itself. It also decides what a failure means.
//!
//! ```text
//!  Open ── a flush or compaction failed ──► ReadOnly: what is durable can be read, nothing is unknown ──┐
//!    │                                                                                                  │ opens again by itself,
//!    ├── a write or sync met a full disk ─► Closed: nothing is answered ────────────────────────────────┤ with growing pauses
//!    │                                                                                                  ▼
//!    └── a write or sync failed ──────────► Closed: nothing is answered ── reopen() or a restart ────► Open
//! ```
//! After a failed write or sync the last group may or may not be on the disk. Until the engine has been opened anew nobody can know,
//! so not even reads are answered: a reader would take the old state for the outcome.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use abide_store::public::{PublicWrite, PutError, TableSchema};
use abide_store::rows::{Batch, CommitOutcome, Partition, StoreError};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::answer::Pending;
use crate::buffers::Buffers;
use crate::engine::{Changes, Engine, io_error};
use crate::folder::{OpenError, is_disk_full};
use crate::group::{Group, Heads};
use crate::state::{BACKGROUND_FAILED, Pause, Shared, State};

/// What waits for the committer.
pub(crate) enum Work {
    Commit {
        partition: Partition,
        batch: Arc<Batch>,
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

/// A put of which some rows are not written yet.
struct Rest {
    table: &'static TableSchema,
    writes: std::vec::IntoIter<PublicWrite>,
    reply: oneshot::Sender<Result<(), PutError>>,
    /// Held until it is answered.
    room: Option<OwnedSemaphorePermit>,
}

/// The most requests and bytes of one group, so that neither memory nor the wait for one sync grows without bound.
const GROUP_REQUESTS_MAX: usize = 4_096;
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Public rows that ride along with a group: some, and one more for so many rows of its commits. A public row takes long, with its index
/// entries, and runs wait for commits while nobody waits for these; every run writes far fewer of them than other rows, so they keep up.
const GROUP_PUBLIC_ROWS: usize = 16;
const ROWS_PER_PUBLIC_ROW: usize = 4;

/// Runs until every sender is gone, then closes the engine in order.
pub(crate) fn run(shared: &Shared, queue: &mut mpsc::Receiver<Request>) {
    let engine = match shared.state() {
        State::Open(engine) | State::ReadOnly(engine, _) => Arc::downgrade(&engine),
        State::Closed { .. } => Weak::new(),
    };
    let mut committer = Committer {
        shared,
        engine,
        heads: Heads::default(),
        buffers: Buffers::new(),
        counter: 0,
        pause: Pause::default(),
        puts: VecDeque::new(),
    };
    let ended = catch_unwind(AssertUnwindSafe(|| {
        loop {
            let mut waiting = Vec::new();
            if committer.puts.is_empty() {
                let Some(first) = queue.blocking_recv() else { break };
                waiting.push(first);
            }
            let mut bytes = waiting.iter().map(|first| size(&first.work)).sum::<usize>();
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
    }));
    if ended.is_err() {
        let reason = "the committer failed; the process must be restarted".to_owned();
        shared.set(State::Closed { reason, heals: false });
    }
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
    write.bytes() + 512
}

type Commit = (Partition, Arc<Batch>, oneshot::Sender<CommitOutcome>);

struct Committer<'s> {
    shared: &'s Shared,
    /// The engine opened last. Readers and backups may hold it after the state has let go of it.
    engine: Weak<Engine>,
    heads: Heads,
    buffers: Buffers,
    counter: u64,
    pause: Pause,
    /// Public rows that wait for their turn, in the order they came.
    puts: VecDeque<Rest>,
}

impl Committer<'_> {
    fn serve(&mut self, waiting: Vec<Request>) {
        let (mut commits, mut rooms) = (Vec::with_capacity(waiting.len()), Vec::with_capacity(waiting.len()));
        for Request { work, room } in waiting {
            match work {
                Work::Commit { partition, batch, reply } => {
                    commits.push((partition, batch, reply));
                    rooms.push(room);
                }
                Work::Put { table, writes, reply } => {
                    self.puts.push_back(Rest { table, writes: writes.into_iter(), reply, room });
                }
                Work::Reopen { reply } => drop(reply.send(self.reopen())),
                Work::Revive => {}
            }
        }
        self.heal();
        if commits.is_empty() && self.puts.is_empty() {
            return;
        }
        match self.refusal() {
            Some(reason) => self.refuse(commits, &reason),
            None => self.commit(commits, &mut rooms),
        }
        drop(rooms);
    }

    /// Answers what was not tried, and what of puts is left.
    fn refuse(&mut self, commits: Vec<Commit>, reason: &str) {
        for (_, _, reply) in commits {
            drop(reply.send(CommitOutcome::Unavailable { reason: reason.to_owned() }));
        }
        for put in self.puts.drain(..) {
            drop(put.reply.send(Err(StoreError::Unavailable { reason: reason.to_owned() }.into())));
        }
    }

    /// Why nothing can be written now.
    fn refusal(&self) -> Option<String> {
        match self.shared.state() {
            State::Closed { reason, .. } | State::ReadOnly(_, reason) => Some(reason),
            State::Open(_) => self.shared.disk_full(),
        }
    }

    fn commit(&mut self, commits: Vec<Commit>, rooms: &mut Vec<Option<OwnedSemaphorePermit>>) {
        let State::Open(engine) = self.shared.state() else { return };
        let mut group = Group::new(&engine, &mut self.heads);
        let mut pending = Vec::with_capacity(commits.len());
        for (partition, batch, reply) in commits {
            self.counter += 1;
            let outcome = group.add(&partition, &batch, self.counter).unwrap_or_else(|error| {
                CommitOutcome::Unavailable {
                    reason: format!("a row that must be checked cannot be read: {error}"),
                }
            });
            pending.push(Pending::Commit(partition, outcome, reply));
        }
        let mut left = GROUP_PUBLIC_ROWS + group.rows() / ROWS_PER_PUBLIC_ROW;
        while left > 0
            && let Some(mut put) = self.puts.pop_front()
        {
            let some: Vec<PublicWrite> = put.writes.by_ref().take(left).collect();
            left -= some.len();
            let written = group.put(put.table, some).map_err(|error| {
                let reason = format!("a row to be replaced cannot be read: {error}");
                PutError::Store(StoreError::Unavailable { reason })
            });
            if written.is_ok() && !put.writes.as_slice().is_empty() {
                self.puts.push_front(put);
            } else {
                pending.push(Pending::Put(written, put.reply));
                rooms.push(put.room);
            }
        }
        let changes = group.into_changes();
        let applied = match engine.wait_for_room() {
            true => self.apply(&engine, changes),
            false => Err(fjall::Error::Poisoned),
        };
        self.buffers.note(engine.buffers());
        drop(engine);
        match applied {
            Ok(()) => {
                self.pause.failures = 0;
                pending.into_iter().for_each(|answer| answer.durable(self.shared));
            }
            // The engine looks whether it is poisoned before it writes anything.
            Err(fjall::Error::Poisoned) => {
                self.heads = Heads::default();
                let reason = self.background_work_failed();
                pending.into_iter().for_each(|answer| answer.failed(&reason, false));
                self.refuse(Vec::new(), &reason);
            }
            Err(error) => {
                self.heads = Heads::default();
                let reason = self.write_failed(&error);
                pending.into_iter().for_each(|answer| answer.failed(&reason, true));
                self.refuse(Vec::new(), &reason);
            }
        }
    }

    fn apply(&self, engine: &Engine, changes: Changes) -> fjall::Result<()> {
        #[cfg(feature = "faults")]
        if let Some(applied) =
            self.shared.fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
        {
            if applied {
                engine.apply(changes, self.shared.options.sync)?;
            }
            return Err(std::io::Error::other("a fault was asked for").into());
        }
        engine.apply(changes, self.shared.options.sync)
    }

    /// Nobody can tell whether the last group is on the disk.
    fn write_failed(&self, error: &fjall::Error) -> String {
        let reason =
            format!("a write or sync failed, so the store is closed until it is opened again: {error}");
        let heals = io_error(error).is_some_and(is_disk_full);
        self.shared.set(State::Closed { reason: reason.clone(), heals });
        reason
    }

    /// A flush or a compaction failed. Nothing is unknown; opening the engine anew may cure it.
    fn background_work_failed(&self) -> String {
        if let State::Open(engine) = self.shared.state() {
            self.shared.set(State::ReadOnly(engine, BACKGROUND_FAILED.to_owned()));
        }
        BACKGROUND_FAILED.to_owned()
    }

    /// Opens the engine again if that may help and it is time.
    fn heal(&mut self) {
        let may_help = match self.shared.state() {
            State::Open(_) => false,
            State::ReadOnly(..) => true,
            State::Closed { heals, .. } => heals,
        };
        if may_help && self.shared.disk_full().is_none() && self.pause.is_over() {
            // Counted also when it opens: only a commit shows that it works again.
            self.pause.failures += 1;
            // A failure leaves the store as it is, with the reason; a later request tries again.
            drop(self.reopen());
        }
    }

    fn reopen(&mut self) -> Result<(), OpenError> {
        let (readable, heals) = match self.shared.state() {
            State::Open(engine) if !engine.is_poisoned() => return Ok(()),
            State::Open(_) | State::ReadOnly(..) => (true, true),
            State::Closed { heals, .. } => (false, heals),
        };
        self.shared.set(State::Closed { reason: "it is being opened again".to_owned(), heals });
        if !is_gone(&self.engine) {
            // What is durable can be read as long as somebody holds it; not so if an outcome is unknown.
            if let Some(engine) = self.engine.upgrade().filter(|_| readable) {
                self.shared.set(State::ReadOnly(engine, BACKGROUND_FAILED.to_owned()));
            }
            return Err(OpenError::InUse { folder: self.shared.folder.path().to_owned() });
        }
        match self.shared.folder.open_engine(&self.shared.options) {
            Ok((engine, _)) => {
                let engine = Arc::new(engine);
                self.heads = Heads::default();
                self.counter = 0;
                self.engine = Arc::downgrade(&engine);
                self.shared.set(State::Open(engine));
                Ok(())
            }
            Err(error) => {
                let heals = heals || matches!(error, OpenError::InUse { .. } | OpenError::DiskFull { .. });
                let heals = heals && !matches!(error, OpenError::Damaged { .. });
                self.shared.set(State::Closed { reason: error.to_string(), heals });
                Err(error)
            }
        }
    }

    fn close(&self) {
        let state = self.shared.state();
        self.shared.set(State::Closed { reason: "the store was closed".to_owned(), heals: false });
        if let State::Open(engine) = state {
            let in_order = !engine.is_poisoned();
            drop(engine);
            if in_order {
                // Without the mark the next open checks and rewrites the journal: slower, not worse.
                drop(self.shared.folder.mark_clean());
            }
        }
    }
}

/// Whether the old engine has let go of its files, which must not be touched before. A reader holds it for a moment, a backup for longer.
fn is_gone(engine: &Weak<Engine>) -> bool {
    (0..100).any(|_| {
        let gone = engine.strong_count() == 0;
        if !gone {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        gone
    })
}
