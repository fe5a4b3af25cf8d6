//! Injects faults into the reference store: the same seed and the same calls give the same outcomes.
//!
//! It does not know the rows: it only decides the outcome of a commit, and whether a read fails.

use crate::rows::{Batch, CommitOutcome, Key, Precondition};

/// The number of faults in a thousand calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRates {
    pub seed: u64,
    /// Commits that return a conflict although nothing conflicts; not applied.
    pub conflict_per_mille: u16,
    /// Commits and reads that return Unavailable; not applied.
    pub unavailable_per_mille: u16,
    /// Commits that return Unknown; half of them are applied.
    pub unknown_per_mille: u16,
}

/// The fault of one commit.
#[derive(Clone, Copy, Debug)]
pub(super) enum CommitFault {
    Conflict,
    Unavailable,
    UnknownApplied,
    UnknownDropped,
}

impl FaultRates {
    pub(super) fn draw_commit_fault(&self, rng: &mut SeededRng) -> Option<CommitFault> {
        let drawn = rng.below(1_000);
        let conflict = u64::from(self.conflict_per_mille);
        let unavailable = conflict + u64::from(self.unavailable_per_mille);
        let unknown = unavailable + u64::from(self.unknown_per_mille);
        match drawn {
            _ if drawn < conflict => Some(CommitFault::Conflict),
            _ if drawn < unavailable => Some(CommitFault::Unavailable),
            _ if drawn < unknown && rng.below(2) == 0 => Some(CommitFault::UnknownApplied),
            _ if drawn < unknown => Some(CommitFault::UnknownDropped),
            _ => None,
        }
    }

    pub(super) fn draw_read_fault(&self, rng: &mut SeededRng) -> bool {
        self.unavailable_per_mille > 0 && rng.below(1_000) < u64::from(self.unavailable_per_mille)
    }
}

impl CommitFault {
    /// Returns the injected outcome. `apply` really commits the batch.
    pub(super) fn inject(self, batch: &Batch, apply: impl FnOnce(&Batch)) -> CommitOutcome {
        let reason = "injected fault".to_owned();
        match self {
            Self::Conflict => injected_conflict(batch),
            Self::Unavailable => CommitOutcome::Unavailable { reason },
            Self::UnknownApplied => {
                apply(batch);
                CommitOutcome::Unknown { reason }
            }
            Self::UnknownDropped => CommitOutcome::Unknown { reason },
        }
    }
}

fn injected_conflict(batch: &Batch) -> CommitOutcome {
    let checked = batch.writes.iter().filter(|write| write.precondition != Precondition::Unchecked);
    let keys: Vec<Key> = checked.map(|write| write.key.clone()).collect();
    if keys.is_empty() { CommitOutcome::Fenced } else { CommitOutcome::Conflict(keys) }
}

/// Pseudo-random numbers from a seed (splitmix64): small, fast, the same on every machine. Not for secrets.
#[derive(Clone, Debug)]
pub struct SeededRng(u64);

impl SeededRng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound` − 1; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }
}
