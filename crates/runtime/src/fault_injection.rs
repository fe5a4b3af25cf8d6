//! Faults that can be injected to prove that the tests find them. Only in test builds.
//!
//! Most are planted where events enter a shard and effects leave it (`shard/root/planted_faults.rs`). A few must stand
//! inside a decision. A poison makes the turns of one instance lethal; unlike a fault, a correct shard survives it.

use abide_workflow::{Instance, InstanceId, Message, Status};

use crate::config::ShardConfig;

/// One planted fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Commits do not check the head.
    NoFence,
    /// Clients get their reply before the commit.
    EarlyReply,
    /// A timer is kept in memory but not stored.
    LostTimer,
    /// A message to another shard is processed again when it is sent again.
    DuplicateMessage,
    /// A message is deleted before its effect is durable.
    MessageDeletedEarly,
    /// A run is completed while some of its branches are still open.
    EarlyCompletion,
    /// An ended run accepts messages.
    TerminalReopened,
    /// Events buffered at a continue-as-new are dropped.
    EventLostAtContinue,
    /// Recovery retries calls from a list made before the shard was taken over.
    StaleRecovery,
    /// An attempt is made before it is durably counted.
    AttemptNotPersisted,
    /// A child's end is reported twice.
    ChildEndDoubled,
    /// The row of an instance is not written when its run ends.
    InstanceRowNotWritten,
    /// The idempotency key of a call does not include the run.
    KeyWithoutRun,
    /// Calls in flight are not retried after a crash.
    OrphanedCallsLost,
    /// A call that failed permanently is retried.
    PermanentFailureRetried,
    /// An attempt is recorded and never sent. Not in [`Self::ALL`]: reconciliation repairs it.
    AttemptLost,
    /// A commit of unknown outcome is treated as successful.
    UnknownOutcomeAsSuccess,
    /// A terminate request is acknowledged and dropped.
    TerminateDropped,
    /// Public rows that could not be written count as written.
    PublicRowStale,
    /// A run that was replaced can no longer be found by its run number.
    EarlierRunLost,
    /// A run that was deleted can still be found by its run number.
    EarlierRunKept,
    /// The call of a withdrawn attempt is never sent again.
    WithdrawnAttemptLost,
    /// The head does not name the instance whose stored work is done, so nobody learns whose work ended the process.
    MarkNotWritten,
    /// A run that was ended with its tree does not pass the order on to the children it abandoned.
    TreeOrderForgotten,
    /// The messages of a turn that no commit can hold are sent all the same. Not in [`Self::ALL`]: no run of the
    /// simulator has such a turn, so the tests of the shard find it.
    DroppedTurnLeaks,
}

impl Fault {
    /// The faults that the tests must find.
    pub const ALL: [Self; 23] = [
        Self::NoFence,
        Self::EarlyReply,
        Self::LostTimer,
        Self::DuplicateMessage,
        Self::MessageDeletedEarly,
        Self::EarlyCompletion,
        Self::TerminalReopened,
        Self::EventLostAtContinue,
        Self::StaleRecovery,
        Self::AttemptNotPersisted,
        Self::ChildEndDoubled,
        Self::InstanceRowNotWritten,
        Self::KeyWithoutRun,
        Self::OrphanedCallsLost,
        Self::PermanentFailureRetried,
        Self::UnknownOutcomeAsSuccess,
        Self::TerminateDropped,
        Self::PublicRowStale,
        Self::EarlierRunLost,
        Self::EarlierRunKept,
        Self::WithdrawnAttemptLost,
        Self::MarkNotWritten,
        Self::TreeOrderForgotten,
    ];
}

impl Fault {
    /// The fault that the environment asks for by its name: `ABIDE_FAULT=EarlyReply`. Controls of the crash rigs use
    /// it.
    pub fn from_environment() -> Option<Self> {
        let wanted = std::env::var("ABIDE_FAULT").ok()?;
        let fault = Self::ALL.into_iter().find(|fault| format!("{fault:?}") == wanted);
        if fault.is_none() {
            tracing::error!(fault = wanted, "unknown fault in ABIDE_FAULT; none is planted");
        }
        fault
    }
}

/// An instance whose turns panic or end the process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Poison {
    pub instance_id: InstanceId,
    pub effect: PoisonEffect,
}

/// What a poison does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoisonEffect {
    /// Every evaluation panics: each turn, and the check of an input.
    Panic,
    /// A turn, or the check of an input, ends the process, as a lack of memory does. A run that is suspended, is
    /// terminated or has ended evaluates nothing.
    Abort,
    /// As [`Self::Abort`], for the simulator: a [`ProcessDeath`] unwinds through the shard, without a message. The
    /// first turn of a run is spared, so that something is stored that can end the next process.
    Die,
}

/// The payload of the panic by which a simulated process dies.
#[derive(Clone, Copy, Debug)]
pub struct ProcessDeath;

impl Poison {
    /// The poison that the environment asks for: `ABIDE_POISON=abort:ID` or `panic:ID`.
    pub fn from_environment() -> Option<Self> {
        let wanted = std::env::var("ABIDE_POISON").ok()?;
        let poison = wanted.split_once(':').and_then(|(effect, id)| {
            let effect = match effect {
                "abort" => PoisonEffect::Abort,
                "panic" => PoisonEffect::Panic,
                _ => return None,
            };
            Some(Self { instance_id: InstanceId::new(id).ok()?, effect })
        });
        if poison.is_none() {
            tracing::error!(poison = wanted, "ABIDE_POISON cannot be read; nothing is poisoned");
        }
        poison
    }
}

fn effect_on(config: &ShardConfig, id: &InstanceId) -> Option<PoisonEffect> {
    config.poison.as_ref().filter(|poison| poison.instance_id == *id).map(|poison| poison.effect)
}

/// A turn begins: ends the process if the run is poisoned so.
pub(crate) fn begin_turn(config: &ShardConfig, instance: &Instance, first: Option<&Message>) {
    let status = instance.status();
    let terminates = matches!(first, Some(Message::Terminate { .. }));
    let spared = status == Status::Pending
        && effect_on(config, &instance.origin().instance_id) == Some(PoisonEffect::Die);
    if status != Status::Suspended && !status.is_terminal() && !terminates && !spared {
        begin_work(config, &instance.origin().instance_id);
    }
}

/// A turn, or the check of an input, begins: ends the process if the instance is poisoned so.
pub(crate) fn begin_work(config: &ShardConfig, id: &InstanceId) {
    match effect_on(config, id) {
        Some(PoisonEffect::Abort) => std::process::abort(),
        Some(PoisonEffect::Die) => std::panic::resume_unwind(Box::new(ProcessDeath)),
        Some(PoisonEffect::Panic) | None => {}
    }
}

/// An evaluation of data begins, contained: panics if the instance is poisoned so.
#[expect(clippy::panic, reason = "a planted panic")]
pub(crate) fn begin_evaluation(config: &ShardConfig, id: &InstanceId) {
    if effect_on(config, id) == Some(PoisonEffect::Panic) {
        panic!("the data of {id} is poisonous");
    }
}
