//! The identity of one piece of work, by which a receiver tells repeated work from new work.
//!
//! The idempotency key is a digest of what the work *is*, never of when or where it is done: the same over retries,
//! restarts and nodes, and a different one for every run, visit, branch and redrive. Knows nothing about how the parts
//! of an identity are determined.

use sha2::{Digest as _, Sha256};

pub use abide_ids::IdempotencyKey;

/// The stable identity of one activity call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallIdentity<'w> {
    /// The id of the definition.
    pub pipeline: &'w str,
    /// The state's path in the definition.
    pub step: &'w str,
    /// Instance id and run number: a second run of the same id is new work.
    pub execution_id: &'w str,
    /// The number of this visit of the state on its branch.
    pub visit: u32,
    /// How often rewind has run this visit again.
    pub redrive: u32,
    /// The fan-outs on the way to the branch, outermost first.
    pub lineage: &'w [FanOutStep],
}

/// One fan-out on the way to a branch or item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FanOutStep {
    /// The number of this visit of the map or parallel.
    pub visit: u32,
    /// How often rewind has run that visit again.
    pub redrive: u32,
    /// The branch's or item's position.
    pub index: u32,
}

impl CallIdentity<'_> {
    /// The key of this work. Every text is digested with its length, so that no two identities collide.
    pub fn idempotency_key(&self) -> IdempotencyKey {
        let mut digest = Sha256::new();
        for text in [self.pipeline, self.step, self.execution_id] {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text.as_bytes());
        }
        for number in [self.visit, self.redrive] {
            digest.update(number.to_be_bytes());
        }
        for fan_out in self.lineage {
            for number in [fan_out.visit, fan_out.redrive, fan_out.index] {
                digest.update(number.to_be_bytes());
            }
        }
        IdempotencyKey(digest.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const WORK: CallIdentity<'static> = CallIdentity {
        pipeline: "onboarding",
        step: "Register",
        execution_id: "device-7/1",
        visit: 1,
        redrive: 0,
        lineage: &[],
    };

    /// Receivers store keys, so this one must never change.
    #[test]
    fn the_key_of_an_identity_never_changes() {
        let key = WORK.idempotency_key().to_string();
        assert_eq!(key, "97a03e985fe3a8384e441ed101968729605839529c2c74ff1be0ddca016893a7");
    }

    #[test]
    fn every_part_of_an_identity_changes_the_key() {
        let item = |visit, redrive, index| FanOutStep { visit, redrive, index };
        let lineages = [
            vec![],
            vec![item(1, 0, 0)],
            vec![item(1, 0, 1)],
            vec![item(2, 0, 0)],
            vec![item(1, 1, 0)],
            vec![item(1, 0, 0), item(1, 0, 0)],
        ];
        let mut keys: Vec<IdempotencyKey> =
            lineages.iter().map(|lineage| CallIdentity { lineage, ..WORK }.idempotency_key()).collect();
        keys.extend(
            [
                CallIdentity { pipeline: "onboardingRegister", step: "", ..WORK },
                CallIdentity { pipeline: "", step: "onboardingRegister", ..WORK },
                CallIdentity { step: "Register2", ..WORK },
                CallIdentity { execution_id: "device-7/2", ..WORK },
                CallIdentity { visit: 2, ..WORK },
                CallIdentity { redrive: 1, ..WORK },
                CallIdentity { visit: 0, redrive: 1, ..WORK },
            ]
            .iter()
            .map(CallIdentity::idempotency_key),
        );
        let different: HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }
}
