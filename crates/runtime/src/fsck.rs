//! Proves a store that nobody is working on: every live run has something that will move it, every timer and call somebody who waits for it,
//! every status its history, and no row belongs to nobody.
//!
//! Reads only. Checks one shard at a time, in memory; a finding names the row and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use abide_store::rows::{Key, Partition, PartitionError, PrivateRows, Row, StoreError};
use abide_store::tables::dispatches::{self, Dispatch};
use abide_store::tables::expiries::{self, Expired, Expiry};
use abide_store::tables::instances::{self, RunStatus};
use abide_store::tables::timers::{Timer, TimerKey, TimerPurpose};
use abide_store::tables::{Table, decode, inbox, outbox, pages, parts, payloads};
use abide_workflow::instance::WaitingFor;
use abide_workflow::{InstanceId, Status};

use crate::definitions::Definitions;
use crate::placement::{ShardCount, ShardId};
use crate::post::{self, Letter, Post};
use crate::run::{RunReader, StoredRun};

/// Something that is not as it must be.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Where.
    pub shard: ShardId,
    /// The instance it is about, if there is one.
    pub instance_id: Option<String>,
    /// What is wrong.
    pub what: String,
}

/// What was looked at, and what was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Instances.
    pub instances: u64,
    /// Of those, live ones.
    pub live: u64,
    /// Of those, parked ones: they say why themselves.
    pub parked: u64,
    /// Rows.
    pub rows: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Why a store could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum FsckError {
    /// The store could not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A partition has no name.
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

/// Checks every shard of a store.
pub async fn check<S: PrivateRows>(
    store: &S,
    definitions: &Definitions<S>,
    shards: ShardCount,
) -> Result<Report, FsckError> {
    let mut report = Report::default();
    let mut children = Children::default();
    for shard in shards.shards() {
        let mut check = Check {
            reader: RunReader { store, definitions },
            shard,
            partition: shard.partition()?,
            report: &mut report,
            children: &mut children,
            runs: BTreeMap::new(),
            expiring: BTreeSet::new(),
            marked: BTreeSet::new(),
        };
        check.shard().await?;
        check.arrivals(&shard.inbox()?).await?;
    }
    children.check(&mut report);
    report.findings.sort();
    Ok(report)
}

/// Who waits for a child, who is one, and what is on its way between them; over all shards.
#[derive(Default)]
struct Children {
    /// Child id → who waits for it: shard, parent and run.
    awaited: BTreeMap<String, (ShardId, String, u32)>,
    /// Live children.
    live: BTreeSet<String>,
    /// Children named by messages on their way, and parents told by them.
    on_the_way: BTreeSet<String>,
}

impl Children {
    fn note_post(&mut self, to: &str, post: &Post) {
        match post {
            Post::StartChild(_) => {
                self.on_the_way.insert(to.to_owned());
            }
            Post::ToParent { parent, .. } => {
                self.on_the_way
                    .insert(format!("{}/{}/{}", parent.instance_id, parent.run.0, parent.command.0));
            }
            Post::TerminateChild { .. } | Post::Continue { .. } | Post::Routed(_) => {}
        }
    }

    fn check(&self, report: &mut Report) {
        for (child, (shard, parent, _)) in &self.awaited {
            let (child_id, answer) = child.split_once('\n').unwrap_or((child, ""));
            if !self.live.contains(child_id)
                && !self.on_the_way.contains(child_id)
                && !self.on_the_way.contains(answer)
            {
                let what =
                    format!("it waits for child {child_id}, which is not live, and nothing is on its way");
                report.findings.push(Finding { shard: *shard, instance_id: Some(parent.clone()), what });
            }
        }
    }
}

struct Check<'c, S> {
    reader: RunReader<'c, S>,
    shard: ShardId,
    partition: Partition,
    report: &'c mut Report,
    children: &'c mut Children,
    /// Runs that an id leads to.
    runs: BTreeMap<u64, Known>,
    /// Runs that are kept for a while, or are being deleted.
    expiring: BTreeSet<u64>,
    /// Runs whose public row is on its way.
    marked: BTreeSet<u64>,
}

struct Known {
    id: String,
    stored: Option<StoredRun>,
    timers: BTreeSet<TimerKey>,
    messages: usize,
}

impl<S: PrivateRows> Check<'_, S> {
    async fn shard(&mut self) -> Result<(), FsckError> {
        let rows = self.rows(&self.partition).await?;
        self.report.rows += rows.len() as u64;
        for row in &rows {
            match Table::of(&row.key) {
                Some(Table::Instance) => self.instance(row).await?,
                Some(Table::Expiry) => self.expiry(row),
                Some(Table::Outbox) => self.marker(row),
                _ => {}
            }
        }
        for row in &rows {
            self.row(row);
        }
        for (run, known) in std::mem::take(&mut self.runs) {
            self.run(run, &known).await?;
        }
        Ok(())
    }

    async fn rows(&self, partition: &Partition) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        let mut next = Some(abide_store::rows::Scan::all());
        while let Some(scan) = next {
            let page = self.reader.store.scan(partition, scan).await?;
            rows.extend(page.rows);
            next = page.next;
        }
        Ok(rows)
    }

    async fn arrivals(&mut self, inbox: &Partition) -> Result<(), FsckError> {
        for row in self.rows(inbox).await? {
            self.report.rows += 1;
            let arrival = decode::<abide_store::tables::arrivals::Arrival>(&row.value);
            if let Ok(letter) =
                arrival.map_err(drop).and_then(|a| post::decode::<Letter>(&a.message).map_err(drop))
            {
                self.children.note_post(letter.instance_id.as_str(), &letter.post);
            }
        }
        Ok(())
    }

    fn find(&mut self, instance_id: Option<&str>, what: impl Into<String>) {
        let finding =
            Finding { shard: self.shard, instance_id: instance_id.map(str::to_owned), what: what.into() };
        self.report.findings.push(finding);
    }

    async fn instance(&mut self, row: &Row) -> Result<(), FsckError> {
        self.report.instances += 1;
        let (id, decoded) = match (instances::read_key(&row.key), decode::<instances::Instance>(&row.value)) {
            (Ok(id), Ok(decoded)) => (id, decoded),
            (_, Err(error)) | (Err(error), _) => {
                self.find(None, format!("the row of an instance: {error}"));
                return Ok(());
            }
        };
        let Ok(name) = InstanceId::new(id.clone()) else {
            self.find(Some(&id), "its id is none");
            return Ok(());
        };
        let parked = decoded.status == RunStatus::Parked;
        self.report.parked += u64::from(parked);
        let stored = match decoded.status {
            RunStatus::Purged => None,
            _ => match self.reader.run(&self.partition, &name).await? {
                Ok(stored) => stored,
                Err(unreadable) => {
                    if !parked && decoded.status != RunStatus::Terminated {
                        self.find(Some(&id), format!("it cannot be read: {}", unreadable.reason));
                    }
                    None
                }
            },
        };
        let known = Known { id, stored, timers: BTreeSet::new(), messages: 0 };
        self.runs.insert(decoded.run, known);
        Ok(())
    }

    fn expiry(&mut self, row: &Row) {
        match decode::<Expiry>(&row.value).map(|expiry| expiry.what) {
            Ok(Expired::Run(run)) => {
                self.expiring.insert(run);
            }
            Ok(Expired::Ended(ended)) => self.expiring.extend(ended.into_iter().map(|(_, run)| run)),
            Ok(_) => {}
            Err(error) => self.find(None, format!("an expiry: {error}")),
        }
        if let Err(error) = expiries::read_key(&row.key) {
            self.find(None, format!("an expiry: {error}"));
        }
    }

    fn marker(&mut self, row: &Row) {
        if let Ok((target, run)) = outbox::read_key(&row.key)
            && target == outbox::PUBLIC
        {
            self.marked.insert(run);
        }
    }

    /// A row that must belong to somebody.
    fn row(&mut self, row: &Row) {
        let of_run = |key: &Key| match Table::of(key) {
            Some(Table::Page) => pages::read_key(key).ok().map(|(run, _)| run),
            Some(Table::Part) => {
                decode(&row.value).ok().and_then(|part| parts::read_key(key, &part).ok()).map(|(run, _)| run)
            }
            Some(Table::Payload) => payloads::read_key(key).ok().map(|(run, _)| run),
            _ => None,
        };
        match Table::of(&row.key) {
            Some(Table::Page | Table::Part | Table::Payload) => match of_run(&row.key) {
                None => self.find(None, format!("row {} cannot be read", row.key)),
                Some(run) if !self.runs.contains_key(&run) && !self.expiring.contains(&run) => {
                    // A run that was replaced and is not yet seen in public has no expiry yet.
                    if !self.marked.contains(&run) {
                        self.find(None, format!("row {} belongs to run {run}, which nobody knows", row.key));
                    }
                }
                Some(_) => {}
            },
            Some(Table::Timer) => self.timer(row),
            Some(Table::Dispatch) => self.dispatch(row),
            Some(Table::Inbox) => self.message(row),
            Some(Table::Outbox) => self.outgoing(row),
            Some(_) => {}
            None => self.find(None, format!("row {} is of no table", row.key)),
        }
    }

    fn timer(&mut self, row: &Row) {
        let (key, timer) = match (TimerKey::read(&row.key), decode::<Timer>(&row.value)) {
            (Ok(key), Ok(timer)) => (key, timer),
            (_, Err(error)) | (Err(error), _) => return self.find(None, format!("a timer: {error}")),
        };
        let wanted = self.runs.get(&key.run).and_then(|known| known.stored.as_ref()).is_some_and(|stored| {
            match key.purpose {
                TimerPurpose::StuckAfter => stored.book.stuck_at == Some(key.due_at),
                _ => stored.book.timers.get(&abide_workflow::CommandId(key.number)) == Some(&key.due_at),
            }
        });
        match self.runs.get_mut(&key.run) {
            Some(known) if wanted => {
                known.timers.insert(key);
            }
            // Nothing can be said of what cannot be read.
            Some(known) if known.stored.is_none() => {}
            _ => self.find(Some(&timer.instance_id), format!("timer {key:?} is waited for by nobody")),
        }
    }

    fn dispatch(&mut self, row: &Row) {
        let (run, call) = match (dispatches::read_key(&row.key), decode::<Dispatch>(&row.value)) {
            (Ok((run, _)), Ok(call)) => (run, call),
            (_, Err(error)) | (Err(error), _) => return self.find(None, format!("a call: {error}")),
        };
        let known = self.runs.get(&run);
        let stored = known.and_then(|known| known.stored.as_ref());
        let expected =
            stored.is_some_and(|stored| stored.instance.expects(abide_workflow::CommandId(call.command)));
        if !expected && known.is_none_or(|known| known.stored.is_some()) {
            self.find(
                Some(&call.instance_id),
                format!("call {} of {} is waited for by nobody", call.command, call.activity),
            );
        }
    }

    fn message(&mut self, row: &Row) {
        let waiting = match decode::<inbox::Waiting>(&row.value) {
            Ok(waiting) => waiting,
            Err(error) => return self.find(None, format!("a message: {error}")),
        };
        match post::decode::<Post>(&waiting.message) {
            Ok(post) => {
                self.children.note_post(&waiting.instance_id, &post);
                if let Post::Continue { run } = post
                    && let Some(known) = self.runs.get_mut(&run)
                {
                    known.messages += 1;
                }
            }
            Err(error) => self.find(Some(&waiting.instance_id), error.to_string()),
        }
    }

    fn outgoing(&mut self, row: &Row) {
        let (target, _) = match outbox::read_key(&row.key) {
            Ok(read) => read,
            Err(error) => return self.find(None, error.to_string()),
        };
        if target == outbox::PUBLIC {
            return;
        }
        let letter = decode::<outbox::Outgoing>(&row.value)
            .map_err(|error| error.to_string())
            .and_then(|out| post::decode::<Letter>(&out.message).map_err(|error| error.to_string()));
        match letter {
            Ok(letter) => self.children.note_post(letter.instance_id.as_str(), &letter.post),
            Err(reason) => self.find(None, reason),
        }
    }

    async fn run(&mut self, run: u64, known: &Known) -> Result<(), FsckError> {
        let Some(stored) = &known.stored else { return Ok(()) };
        let status = stored.instance.status();
        if stored.row.status != RunStatus::Parked && crate::shard::row_status(status) != stored.row.status {
            let row = stored.row.status;
            self.find(Some(&known.id), format!("its row says {row:?}, the run itself says {status}"));
        }
        self.history(run, known, status).await?;
        for (command, due_at) in &stored.book.timers {
            let key = TimerKey { due_at: *due_at, run, purpose: TimerPurpose::Wait, number: command.0 };
            if !known.timers.contains(&key) {
                self.find(Some(&known.id), format!("it waits for timer {} that has no row", command.0));
            }
        }
        if status.is_terminal() {
            return Ok(());
        }
        self.report.live += 1;
        self.children.live.insert(known.id.clone());
        if status == Status::Suspended || stored.row.status == RunStatus::Parked {
            return Ok(());
        }
        for standing in stored.instance.current_states(&stored.plan) {
            self.branch(known, stored, &standing.state, &standing.waiting_for);
        }
        Ok(())
    }

    fn branch(&mut self, known: &Known, stored: &StoredRun, state: &str, waiting: &WaitingFor) {
        let what = match waiting {
            WaitingFor::Activity { dispatch, .. } => {
                if stored.calls.iter().any(|call| call.dispatch.command == dispatch.0) {
                    return;
                }
                format!("{state} waits for call {}, which has no record", dispatch.0)
            }
            WaitingFor::Timer { timer } => {
                if stored.book.timers.contains_key(timer) {
                    return;
                }
                format!("{state} waits for timer {}, which was never set", timer.0)
            }
            WaitingFor::Child { child } => {
                let Some(id) = stored.book.children.get(child) else {
                    return self.find(
                        Some(&known.id),
                        format!("{state} waits for child {}, which was never started", child.0),
                    );
                };
                let answer = format!("{}/{}/{}", known.id, stored.row.run_number, child.0);
                let place = (self.shard, known.id.clone(), stored.row.run_number);
                self.children.awaited.insert(format!("{id}\n{answer}"), place);
                return;
            }
            WaitingFor::Nothing if known.messages == 0 => {
                format!("{state} is ready, and nothing will move it")
            }
            _ => return,
        };
        self.find(Some(&known.id), what);
    }

    /// Pages and events without gaps, and an end that is the status.
    async fn history(&mut self, run: u64, known: &Known, status: Status) -> Result<(), FsckError> {
        let (mut page_number, mut event_number) = (0, 0);
        let mut last = String::new();
        let mut next = Some(pages::of_run(run));
        while let Some(scan) = next {
            let scanned = self.reader.store.scan(&self.partition, scan).await?;
            for row in scanned.rows {
                let (Ok((_, number)), Ok(page)) =
                    (pages::read_key(&row.key), decode::<pages::Page>(&row.value))
                else {
                    self.find(Some(&known.id), format!("page {} cannot be read", row.key));
                    return Ok(());
                };
                if number != page_number + 1 {
                    self.find(Some(&known.id), format!("page {number} follows page {page_number}"));
                }
                page_number = number;
                let events: Vec<serde_json::Value> = serde_json::from_slice(&page.events).unwrap_or_default();
                for event in events {
                    let sequence = event.get("sequence").and_then(serde_json::Value::as_u64).unwrap_or(0);
                    if sequence != event_number + 1 {
                        self.find(Some(&known.id), format!("event {sequence} follows event {event_number}"));
                    }
                    event_number = sequence;
                    let kind = event.get("eventType").and_then(serde_json::Value::as_str).unwrap_or_default();
                    if kind.starts_with("Execution") || kind == "ContinueAsNew" {
                        kind.clone_into(&mut last);
                    }
                }
            }
            next = scanned.next;
        }
        let said = match last.as_str() {
            "ExecutionCompleted" => status == Status::Completed,
            "ExecutionFailed" => status == Status::Failed,
            "ExecutionTerminated" => status == Status::Terminated,
            "ContinueAsNew" => status == Status::ContinuedAsNew,
            "ExecutionSuspended" => status == Status::Suspended,
            _ => !status.is_terminal(),
        };
        if !said {
            self.find(Some(&known.id), format!("it is {status}, but its history ends with {last}"));
        }
        Ok(())
    }
}
