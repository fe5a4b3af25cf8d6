//! What one piece of work is called, so that a receiver can tell a repeat from new work.
//!
//! The idempotency key is a digest of what the work *is*, never of when or by whom it is done: the same over retries, restarts and nodes,
//! another one for every run, visit, branch and redrive. Knows nothing of how the parts came to be.

use std::fmt;

use sha2::{Digest, Sha256};

/// The stable identity of one activity call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkIdentity<'w> {
    /// The definition.
    pub pipeline: &'w str,
    /// The state's path in it.
    pub step: &'w str,
    /// Instance id and run number: a second run of the same id is new work.
    pub execution_id: &'w str,
    /// Which visit of the state on its branch.
    pub visit: u32,
    /// How often rewind has run this visit again.
    pub redrive: u32,
    /// The fan-outs on the way to the branch, outermost first.
    pub lineage: &'w [FanOut],
}

/// One fan-out: which visit of the map or parallel, its redrive, and the branch's or item's position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FanOut {
    /// Which visit of the map or parallel.
    pub visit: u32,
    /// How often rewind has run that visit again.
    pub redrive: u32,
    /// The branch's or item's position.
    pub index: u32,
}

/// The receiver's dedupe key. Shown as 64 hexadecimal digits, in headers too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(pub [u8; 32]);

impl IdempotencyKey {
    /// The key of this work. Every part is digested with its length, so no two identities run into each other.
    pub fn of(work: &WorkIdentity<'_>) -> Self {
        let mut digest = Sha256::new();
        for text in [work.pipeline, work.step, work.execution_id] {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text.as_bytes());
        }
        for number in [work.visit, work.redrive] {
            digest.update(number.to_be_bytes());
        }
        for fan_out in work.lineage {
            for number in [fan_out.visit, fan_out.redrive, fan_out.index] {
                digest.update(number.to_be_bytes());
            }
        }
        Self(digest.finalize().into())
    }
}

/// The digest of something that is not shown itself, as 64 hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    IdempotencyKey(Sha256::digest(bytes).into()).to_string()
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const WORK: WorkIdentity<'static> = WorkIdentity {
        pipeline: "onboarding",
        step: "Register",
        execution_id: "device-7/1",
        visit: 1,
        redrive: 0,
        lineage: &[],
    };

    /// Receivers keep keys: this one may never change.
    #[test]
    fn the_same_work_has_the_key_it_always_had() {
        let key = IdempotencyKey::of(&WORK).to_string();
        assert_eq!(key, "97a03e985fe3a8384e441ed101968729605839529c2c74ff1be0ddca016893a7");
    }

    #[test]
    fn whatever_makes_work_other_work_makes_another_key() {
        let item = |visit, redrive, index| FanOut { visit, redrive, index };
        let lineages = [
            vec![],
            vec![item(1, 0, 0)],
            vec![item(1, 0, 1)],
            vec![item(2, 0, 0)],
            vec![item(1, 1, 0)],
            vec![item(1, 0, 0), item(1, 0, 0)],
        ];
        let mut keys: Vec<IdempotencyKey> =
            lineages.iter().map(|lineage| IdempotencyKey::of(&WorkIdentity { lineage, ..WORK })).collect();
        keys.extend(
            [
                WorkIdentity { pipeline: "onboardingRegister", step: "", ..WORK },
                WorkIdentity { pipeline: "", step: "onboardingRegister", ..WORK },
                WorkIdentity { step: "Register2", ..WORK },
                WorkIdentity { execution_id: "device-7/2", ..WORK },
                WorkIdentity { visit: 2, ..WORK },
                WorkIdentity { redrive: 1, ..WORK },
                WorkIdentity { visit: 0, redrive: 1, ..WORK },
            ]
            .iter()
            .map(IdempotencyKey::of),
        );
        let different: HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }
}
