//! Mistakes that can be planted, to see that the tests find them. Only in test builds.

/// One mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Commits do not check the head.
    NoFence,
    /// Clients are answered before the commit.
    EarlyAcknowledgement,
    /// A timer is kept in memory and not stored.
    LostTimer,
    /// A message to another shard is taken again when it comes again.
    DoubleDelivery,
    /// A message is deleted before its effect is durable.
    EarlyDeletion,
    /// A run with branches out is completed.
    EarlyCompletion,
    /// An ended run takes messages.
    TerminalReopened,
    /// Events buffered at a continueAsNew are dropped.
    EventLostAtContinue,
    /// Calls are delivered again from a list made before the shard was taken.
    StaleRecovery,
    /// A delivery is not counted before it is made.
    AttemptNotPersisted,
    /// A child's end is told twice.
    ChildEndDoubled,
    /// The row of an instance is not written when its run ends.
    StatusApart,
    /// The key of a call does not name the run.
    KeyWithoutRun,
    /// Calls under way are not delivered again after a crash.
    OrphansForgotten,
    /// A call that was refused for good is made again.
    FinalRetried,
    /// A delivery is recorded and forgotten. Not among [`Self::ALL`]: reconciliation is there to make up for it.
    DeliveryForgotten,
    /// An unknown outcome is taken for a success.
    UnknownAssumedDone,
    /// An order to end a run is acknowledged and dropped.
    TerminateDropped,
    /// Public rows that could not be written count as written.
    PublicRowStale,
    /// A run that is replaced is not found by its number any more.
    EarlierRunLost,
    /// A run that is forgotten is still found by its number.
    EarlierRunKept,
    /// A call that was taken back is forgotten.
    WithdrawnForgotten,
}

impl Bug {
    /// All that must be found.
    pub const ALL: [Self; 21] = [
        Self::NoFence,
        Self::EarlyAcknowledgement,
        Self::LostTimer,
        Self::DoubleDelivery,
        Self::EarlyDeletion,
        Self::EarlyCompletion,
        Self::TerminalReopened,
        Self::EventLostAtContinue,
        Self::StaleRecovery,
        Self::AttemptNotPersisted,
        Self::ChildEndDoubled,
        Self::StatusApart,
        Self::KeyWithoutRun,
        Self::OrphansForgotten,
        Self::FinalRetried,
        Self::UnknownAssumedDone,
        Self::TerminateDropped,
        Self::PublicRowStale,
        Self::EarlierRunLost,
        Self::EarlierRunKept,
        Self::WithdrawnForgotten,
    ];
}
