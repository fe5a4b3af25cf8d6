//! The points at which a process can crash.

use std::fmt;

/// A crash point. A process reaches each point many times; [`PlannedCrash`] says at which time it crashes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MatrixCrashPoint {
    /// A commit is ready and never reaches the store.
    BeforeCommit,
    /// A commit is applied and its outcome is lost.
    AfterCommit,
    /// The effects of a commit have begun: attempts are sent and clients have their replies.
    AfterEffects,
    /// A reply for a client is ready and never sent.
    BeforeReply,
    /// A call is recorded as sent and never sent.
    BeforeCall,
    /// An activity has returned a result and the result is lost.
    AfterCall,
    /// A run message for another shard is recorded and not yet sent.
    BeforeRunMessage,
    /// The run message is in the other shard's inbox, and the sender does not know.
    AfterRunMessage,
    /// A message from another shard is applied and not yet deleted from the inbox.
    BeforeInboundDelete,
    /// The message is deleted from the inbox, and the shard does not know.
    AfterInboundDelete,
    /// A public row is ready and not yet written.
    BeforePublicWrite,
    /// The public row is written, and the shard does not know.
    AfterPublicWrite,
    /// A timer has fired and nothing that follows is durable yet.
    TimerFired,
}

impl MatrixCrashPoint {
    pub const ALL: [Self; 13] = [
        Self::BeforeCommit,
        Self::AfterCommit,
        Self::AfterEffects,
        Self::BeforeReply,
        Self::BeforeCall,
        Self::AfterCall,
        Self::BeforeRunMessage,
        Self::AfterRunMessage,
        Self::BeforeInboundDelete,
        Self::AfterInboundDelete,
        Self::BeforePublicWrite,
        Self::AfterPublicWrite,
        Self::TimerFired,
    ];
}

/// A crash at the n-th time that a process reaches a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedCrash {
    pub point: MatrixCrashPoint,
    /// Counts from 1.
    pub occurrence: u64,
}

impl fmt::Display for PlannedCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.point, self.occurrence)
    }
}
