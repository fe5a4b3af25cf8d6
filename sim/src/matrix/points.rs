//! Where a process can be stopped.

use std::fmt;

/// A place in the life of a process. Each is passed many times; a crash names which time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Point {
    /// A commit is made up and never reaches the store.
    BeforeCommit,
    /// A commit is applied and its answer never heard.
    AfterCommit,
    /// What follows from a commit has begun: calls are delivered, clients answered. Then it ends.
    AfterEffects,
    /// An answer for a client is made up and never given.
    BeforeReply,
    /// A call is recorded as sent and never delivered.
    BeforeCall,
    /// A call is answered and the answer never heard.
    AfterCall,
    /// A message for another shard is recorded and not yet sent.
    BeforePost,
    /// It lies in the other shard's inbox, and the sender does not know.
    AfterPost,
    /// A message from another shard is taken over and not yet deleted where it lay.
    BeforeDrop,
    /// It is deleted, and the taker does not know.
    AfterDrop,
    /// A state for the public table is made up and not yet written.
    BeforeFeed,
    /// It is written, and the writer does not know.
    AfterFeed,
    /// A timer has fired and nothing of it is durable.
    TimerFired,
}

impl Point {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::BeforeCommit,
        Self::AfterCommit,
        Self::AfterEffects,
        Self::BeforeReply,
        Self::BeforeCall,
        Self::AfterCall,
        Self::BeforePost,
        Self::AfterPost,
        Self::BeforeDrop,
        Self::AfterDrop,
        Self::BeforeFeed,
        Self::AfterFeed,
        Self::TimerFired,
    ];
}

/// A crash to come: the n-th time a process comes to a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    /// Where.
    pub point: Point,
    /// The how manieth time, from 1.
    pub time: u64,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.point, self.time)
    }
}
