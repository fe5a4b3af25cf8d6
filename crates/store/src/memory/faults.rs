//! Answers out of the ordinary, by seed: the same seed and the same calls give the same answers.

use crate::rows::{Batch, CommitOutcome, Expect, Key};

/// How often, of a thousand calls, something goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Where the dice begin.
    pub seed: u64,
    /// Commits answered as a conflict although nothing conflicts; not applied.
    pub conflict: u16,
    /// Commits and reads answered with Unavailable; not applied.
    pub unavailable: u16,
    /// Commits answered with Unknown; half of them applied.
    pub unknown: u16,
}

/// What goes wrong with one commit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Conflict,
    Unavailable,
    UnknownApplied,
    UnknownDropped,
}

impl Faults {
    pub(super) fn of_commit(&self, dice: &mut Dice) -> Option<Fault> {
        let thrown = dice.below(1_000);
        let conflict = u64::from(self.conflict);
        let unavailable = conflict + u64::from(self.unavailable);
        let unknown = unavailable + u64::from(self.unknown);
        match thrown {
            _ if thrown < conflict => Some(Fault::Conflict),
            _ if thrown < unavailable => Some(Fault::Unavailable),
            _ if thrown < unknown && dice.below(2) == 0 => Some(Fault::UnknownApplied),
            _ if thrown < unknown => Some(Fault::UnknownDropped),
            _ => None,
        }
    }

    pub(super) fn hits_read(&self, dice: &mut Dice) -> bool {
        self.unavailable > 0 && dice.below(1_000) < u64::from(self.unavailable)
    }
}

impl Fault {
    /// Answers for the store; `apply` really commits.
    pub(super) fn play(self, batch: &Batch, apply: impl FnOnce(&Batch)) -> CommitOutcome {
        let reason = "by seed".to_owned();
        match self {
            Self::Conflict => conflict_of(batch),
            Self::Unavailable => CommitOutcome::Unavailable { reason },
            Self::UnknownApplied => {
                apply(batch);
                CommitOutcome::Unknown { reason }
            }
            Self::UnknownDropped => CommitOutcome::Unknown { reason },
        }
    }
}

fn conflict_of(batch: &Batch) -> CommitOutcome {
    let checked = batch.writes.iter().filter(|write| write.expect != Expect::Anything);
    let keys: Vec<Key> = checked.map(|write| write.key.clone()).collect();
    if keys.is_empty() { CommitOutcome::Fenced } else { CommitOutcome::Conflict(keys) }
}

/// Pseudo-random numbers by seed (splitmix64): small, fast, the same everywhere, and no secret.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that always fall the same way for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound` − 1; 0 for no bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.throw().checked_rem(bound).unwrap_or(0)
    }
}
