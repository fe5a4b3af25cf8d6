//! An instance in a shard's memory: what is known of it, and what waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use abide_dispatch::journal::{FailedFinal, Open, UNANSWERED_MAX};
use abide_store::tables::dedupe::Answer as KeptAnswer;
use abide_store::tables::dispatches::{Dispatch, DispatchState};
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::instances::{Instance as InstanceRow, RunStatus};
use abide_workflow::failure::code;
use abide_workflow::json::Json;
use abide_workflow::{CommandId, Failure, Instance, Message, Plan, Status, Timestamp};

use super::commits::After;
use super::journal::{self, Kept};
use super::schedule::DueKey;
use crate::entity::Routed;
use crate::event::Depth;
use crate::lease::Monotonic;
use crate::post::{ChildStart, Post};
use crate::request::{Repeat, Request, Ticket};
use crate::run::Book;

/// An instance that something is wanted of.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) known: Known,
    /// What waits until enough is known.
    pub(super) items: VecDeque<Item>,
    /// Of those, what recovery found and nobody has come to yet: it is not counted among what waits.
    pub(super) found: usize,
    /// The client's key that was looked for, and the answer kept under it. Until the request that has the key is served.
    pub(super) looked_for: Option<[u8; 32]>,
    pub(super) answer: Option<KeptAnswer>,
    /// What waits for a run that is set aside, until it is resumed.
    pub(super) set_aside: VecDeque<Item>,
    /// Something waits for the run's turns.
    pub(super) blocked: bool,
    /// A client's key is to be looked for again, then.
    pub(super) asking_again: Option<(Monotonic, [u8; 32])>,
    /// A run that was set aside is to be tried again.
    pub(super) resuming: bool,
    /// The gathering that has its newest row, if there is no run in memory to say so.
    pub(super) written: u64,
    /// A child whose plan is being looked for.
    pub(super) child: Option<Promised>,
    /// An event whose run's plan is being looked for, with its row in the inbox.
    pub(super) routed: Option<(u64, Box<Routed>)>,
}

/// A child that is to begin.
#[derive(Debug)]
pub(super) struct Promised {
    /// Its row in the inbox.
    pub(super) sequence: u64,
    /// The item of the parent that started it, where that was told.
    pub(super) item: Option<[u8; 32]>,
    pub(super) start: ChildStart,
}

impl Promised {
    /// As it came.
    pub(super) fn into_item(self) -> Item {
        let start = self.start;
        let post = match self.item {
            Some(item) => Post::StartChildOf { item, start },
            None => Post::StartChild(start),
        };
        Item::Post { sequence: self.sequence, post }
    }
}

/// What is known of an instance.
#[derive(Debug)]
pub(super) enum Known {
    /// Nothing yet.
    Nothing,
    /// It is being looked up.
    LookingUp(Depth),
    /// The store could not say; look again then.
    LookAgain(Depth, Monotonic),
    /// The row of its id, or that there is none.
    Row(Option<InstanceRow>),
    /// Its run.
    Run(Box<Run>),
    /// As before, and something else is being asked: a child's plan, or an answer kept for a client.
    Asking(Box<Known>),
    /// It is there and cannot be read.
    Unreadable { row: Option<Box<InstanceRow>>, last_page: u64, last_event: u64, reason: String },
}

/// Something for an instance.
#[derive(Debug)]
pub(super) enum Item {
    /// A client's request.
    Asked(Ticket, Request),
    /// A message for one run.
    Message { run: u64, envelope: Envelope },
    /// A message of another run, in the shard's inbox under this sequence.
    Post { sequence: u64, post: Post },
    /// A call may have to be delivered.
    Deliver { run: u64, command: CommandId },
    /// A delivery that was recorded will not be made, and nothing of it left.
    Withdrawn { run: u64, command: CommandId, attempt: u32 },
    /// The run counts as stuck.
    Stuck { run: u64, due: DueKey },
    /// A delivery of the run takes long: it is to be looked after.
    LookAfter { run: u64 },
    /// The run's public row may be old; `whole` if its id's row does not say enough of it.
    Feed { run: u64, revision: u64, whole: bool },
    /// The run may be hit by damage.
    Inspect,
    /// The run has been kept long enough.
    Expire { ended: EndedRun, expiry: super::sweep::ExpiryKey },
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            known: Known::Nothing,
            items: VecDeque::new(),
            found: 0,
            looked_for: None,
            answer: None,
            set_aside: VecDeque::new(),
            blocked: false,
            asking_again: None,
            resuming: false,
            written: 0,
            child: None,
            routed: None,
        }
    }

    /// Something else is being asked.
    pub(super) fn ask(&mut self) {
        let known = std::mem::replace(&mut self.known, Known::Nothing);
        self.known = Known::Asking(Box::new(known));
    }

    /// It was answered. False if nothing was asked.
    pub(super) fn asked(&mut self) -> bool {
        match std::mem::replace(&mut self.known, Known::Nothing) {
            Known::Asking(known) => {
                self.known = *known;
                true
            }
            other => {
                self.known = other;
                false
            }
        }
    }

    /// The key of a client's request whose kept answer must be looked for first. The run may be in memory; the answer is in the store.
    pub(super) fn key_to_look_for(&self) -> Option<[u8; 32]> {
        let Some(Item::Asked(_, request)) = self.items.front() else { return None };
        let key = request.repeat().map(|repeat| repeat.key)?;
        (self.looked_for != Some(key)).then_some(key)
    }

    /// The run in memory, also while something else is being asked.
    pub(super) fn run_mut(&mut self) -> Option<&mut Run> {
        let mut known = &mut self.known;
        loop {
            match known {
                Known::Run(run) => return Some(run),
                Known::Asking(before) => known = before,
                _ => return None,
            }
        }
    }
}

impl Item {
    /// How much must be known to serve it.
    pub(super) fn depth(&self) -> Depth {
        match self {
            Self::Asked(_, request) if request.needs_row_only() => {
                Depth::Row { repeat: request.repeat().map(|repeat| repeat.key) }
            }
            Self::Feed { whole: false, .. } | Self::Expire { .. } => Depth::Row { repeat: None },
            Self::Post { post, .. } if post.starts_child() => Depth::Row { repeat: None },
            _ => Depth::Run,
        }
    }
}

/// A message with where it came from.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) message: Message,
    pub(super) from: From,
}

/// Where a message came from, and so what is to be done when it is taken.
#[derive(Clone, Debug)]
pub(super) enum From {
    /// A client: answer, and keep the answer if it may ask again.
    Client(Ticket, Option<Repeat>),
    /// A call: settle it. What the wire said of a failure is for diagnostics; nothing came if there was no delivery.
    Call { command: CommandId, status: Option<String>, came: Option<Came> },
    /// A timer: delete its row.
    Timer(DueKey),
    /// The inbox: delete its row.
    Inbox(u64),
    /// The inbox, for an event from outside: delete its row, and give the event up if it is refused.
    Routed(u64, Box<Routed>),
}

/// What came of a delivery that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Came {
    /// An answer.
    Answer,
    /// Nothing that tells whether the activity ran.
    Nothing,
    /// The call itself: it never left.
    Back,
    /// An answer of whoever stands before the activity, and did not let it through.
    TurnedAway,
}

impl Came {
    pub(super) fn of(failure: &abide_dispatch::Failure) -> Self {
        match (failure.not_sent, failure.outcome_unknown) {
            (true, _) => Self::Back,
            // Before the status: a 503 may be of somebody who lost the answer.
            (false, true) => Self::Nothing,
            (false, false) if failure.is_turned_away() => Self::TurnedAway,
            (false, false) => Self::Answer,
        }
    }
}

/// A run in memory. It may be ahead of the store.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) row: InstanceRow,
    pub(super) plan: Arc<Plan>,
    pub(super) instance: Instance,
    pub(super) book: Book,
    pub(super) calls: BTreeMap<CommandId, OpenCall>,
    /// Calls whose failure the run holds, to decide upon when it is resumed.
    pub(super) held: Vec<CommandId>,
    /// Calls that were settled, for the page of the turn.
    pub(super) settled: Vec<Kept>,
    /// Messages that wait for a turn, and where each came from.
    pub(super) messages: VecDeque<Message>,
    pub(super) froms: VecDeque<From>,
    /// There is more to do without any message.
    pub(super) unfinished: bool,
    /// The inbox row that says so.
    pub(super) continuation: Option<u64>,
    pub(super) last_page: u64,
    /// Parts changed since the last fold: bytes, and the page that has them.
    pub(super) unfolded: BTreeMap<Vec<u8>, (Option<Vec<u8>>, u64)>,
    pub(super) unfolded_bytes: usize,
    pub(super) folding: Option<Folding>,
    /// The gathering that has its newest rows.
    pub(super) written: u64,
    /// What belongs to its first turn, and happens with it: until then nothing of the run is on its way to the store.
    pub(super) first: Vec<First>,
    /// Runs before this one that continued as new, one after the other, without taking anything.
    pub(super) continued: u32,
    /// It is in the queue of runs that wait for room.
    pub(super) queued: bool,
    /// Since when it rests, if it is in the queue of those that do.
    pub(super) resting: Option<Monotonic>,
}

/// Something that becomes durable with the first turn of a run.
#[derive(Debug)]
pub(super) enum First {
    /// What follows from it.
    After(After),
    /// The answer kept for a client that may ask again.
    Keep([u8; 32], KeptAnswer),
    /// The message that asked for the run is done with.
    Inbox(u64),
    /// The run whose place it takes is found as an earlier one: which life of the id it was, and the number the shard gave it.
    Replace { run_number: u32, run: u64 },
}

/// A fold under way: parts still to be written, all of them as of this page or later.
#[derive(Debug)]
pub(super) struct Folding {
    pub(super) until_page: u64,
    pub(super) names: VecDeque<Vec<u8>>,
}

/// A call that is not settled.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) key: [u8; 32],
    /// Its record, without the input.
    pub(super) dispatch: Dispatch,
    pub(super) input: Json,
    /// Of its input, in its record.
    pub(super) bytes: usize,
    /// A delivery is under way from here.
    pub(super) out: bool,
    /// An answer waits for its turn.
    pub(super) answered: bool,
    /// Its record has been written.
    pub(super) recorded: bool,
    /// How it ended without another delivery.
    pub(super) ended: Option<FailedFinal>,
    /// The run holds its failure, and the record says so.
    pub(super) held: bool,
    /// What came of the delivery that was out last, if that was told.
    pub(super) came: Option<Came>,
}

impl OpenCall {
    /// The code of a call that was given up because nobody ever answered it.
    pub(super) const POISON: &str = "Poison";
    /// Bytes of why it failed last that are kept.
    pub(super) const REASON_BYTES_MAX: usize = 1024;

    /// A call that is not recorded yet.
    pub(super) fn new(key: [u8; 32], dispatch: Dispatch, input: Json) -> Self {
        Self {
            key,
            dispatch,
            input,
            bytes: 0,
            out: false,
            answered: false,
            recorded: false,
            ended: None,
            held: false,
            came: None,
        }
    }

    /// The run was loaded again, and holds this.
    pub(super) fn remember(&mut self, failure: &Failure) {
        self.held =
            self.dispatch.state == DispatchState::FailedRetryable && self.dispatch.not_before.is_none();
        let at = self.dispatch.first_failure_at.unwrap_or(self.dispatch.sent_at);
        // Activities may use the same codes: what is ours is final, and the record shows it.
        self.ended = match (failure.code.as_str(), journal::open(&self.dispatch)) {
            _ if failure.retryable => None,
            (code::TIMEOUT, open) if self.has_run_out() => Some(open.expire(at)),
            (Self::POISON, Open::FailedRetryable(failed)) if failed.record.unanswered >= UNANSWERED_MAX => {
                Some(failed.poison(at))
            }
            _ => None,
        };
    }

    /// What a run is told when there is no time left. The record keeps the words.
    pub(super) fn out_of_time() -> Failure {
        Failure::last(code::TIMEOUT, "the step's deadline has passed")
    }

    /// Whether the record says that there was no time left: it was never sent, or that is why it failed last.
    fn has_run_out(&self) -> bool {
        let Failure { code, message, .. } = Self::out_of_time();
        let ours = self.dispatch.reason.as_deref() == Some(&format!("{code}: {message}"));
        self.dispatch.deadline_at.is_some() && (ours || self.dispatch.state == DispatchState::Pending)
    }

    /// Why it failed, kept for whoever looks.
    pub(super) fn note_failure(&mut self, failure: &Failure, status: Option<String>, now: Timestamp) {
        let told = format!("{}: {}", failure.code, failure.message);
        let cut = told.floor_char_boundary(Self::REASON_BYTES_MAX);
        self.dispatch.reason = Some(told.get(..cut).unwrap_or_default().to_owned());
        // The last one that was told: a delivery that never left does not take it away.
        self.dispatch.status = status.or_else(|| self.dispatch.status.take());
        self.dispatch.first_failure_at.get_or_insert(now.0);
    }
}

impl Run {
    /// Whether a turn would do anything.
    pub(super) fn wants_turn(&self) -> bool {
        self.unfinished || !self.messages.is_empty()
    }

    pub(super) fn push(&mut self, envelope: Envelope) {
        self.messages.push_back(envelope.message);
        self.froms.push_back(envelope.from);
    }

    /// Whether it can be dropped from memory: nothing waits, and the store has all of it.
    pub(super) fn rests(&self, durable: u64) -> bool {
        !self.wants_turn() && self.first.is_empty() && self.written <= durable
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        const FIXED: usize = 4 * 1024;
        FIXED + self.unfolded_bytes * 3
    }

    pub(super) fn has_ended(&self) -> bool {
        self.instance.status().is_terminal()
    }
}

/// The row's spelling of a run's status.
pub(crate) fn row_status(status: Status) -> RunStatus {
    match status {
        Status::Pending => RunStatus::Pending,
        Status::Running => RunStatus::Running,
        Status::Suspended => RunStatus::Suspended,
        Status::Completed | Status::ContinuedAsNew => RunStatus::Completed,
        Status::Failed | Status::Canceled => RunStatus::Failed,
        Status::Terminated => RunStatus::Terminated,
    }
}

/// Whether a row's run has ended.
pub(super) fn is_over(status: RunStatus) -> bool {
    use RunStatus::{Completed, Failed, Parked, Pending, Purged, Running, Suspended, Terminated};
    match status {
        Completed | Failed | Terminated | Purged => true,
        Pending | Running | Suspended | Parked => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_dispatch::Failure;

    #[test]
    fn a_delivery_of_unknown_outcome_was_not_turned_away_whatever_its_status() {
        for status in ["401", "403", "429 RESOURCE_EXHAUSTED", "503", "503 UNAVAILABLE"] {
            let failure = Failure::retryable(status, "").with_status(status);
            assert_eq!(Came::of(&failure), Came::TurnedAway, "{status}");
            let unknown = failure.with_outcome_unknown();
            assert_eq!(Came::of(&unknown), Came::Nothing, "{status}");
            assert_eq!(Came::of(&unknown.with_not_sent()), Came::Back, "{status}");
        }
        assert_eq!(Came::of(&Failure::retryable("ABORTED", "").with_status("409 ABORTED")), Came::Answer);
    }
}
