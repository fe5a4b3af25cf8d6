//! A digest of all effects of shards: every commit with its keys and bytes, and every other effect.
//!
//! Two builds with equal digests behave the same and store the same bytes. The digest ignores the names of types,
//! fields and variants, so that renaming them changes nothing: of an effect it takes the numbers and strings, in their
//! order. Prose (strings with a space) goes into a separate digest, because rewording a message does not change
//! behaviour.

use abide_runtime::Effect;
use abide_store::rows::{Batch, Precondition};

/// The effects of a cluster, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BehaviourDigest {
    /// Commits: partition, keys, bytes, preconditions.
    pub commits: u64,
    /// Numbers and words of all other effects.
    pub effects: u64,
    /// Strings with a space in those effects.
    pub prose: u64,
    /// The rows of each run, in their order, whichever commits they share; see `row_order`.
    pub row_order: u64,
    /// All rows in the store at the end but the heads.
    pub final_rows: u64,
}

impl Default for BehaviourDigest {
    fn default() -> Self {
        Self { commits: OFFSET, effects: OFFSET, prose: OFFSET, row_order: OFFSET, final_rows: OFFSET }
    }
}

// FNV-1a.
pub(crate) const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x100_0000_01b3;

impl BehaviourDigest {
    /// Adds an effect of this shard on this node.
    pub(crate) fn add(&mut self, node: usize, shard: usize, effect: &Effect) {
        let place = [node as u64, shard as u64];
        match effect {
            Effect::Commit(id, batch) => {
                place.iter().for_each(|number| mix(&mut self.commits, &number.to_be_bytes()));
                mix(&mut self.commits, &id.0.to_be_bytes());
                self.add_batch(batch);
            }
            Effect::SendMessages(_, batch) | Effect::DeleteInbound(batch) => {
                place.iter().for_each(|number| mix(&mut self.commits, &number.to_be_bytes()));
                self.add_batch(batch);
            }
            other => {
                place.iter().for_each(|number| mix(&mut self.effects, &number.to_be_bytes()));
                self.add_literals(&format!("{other:?}"));
            }
        }
    }

    /// Adds the digest of another cluster.
    pub fn merge(&mut self, other: &Self) {
        mix(&mut self.commits, &other.commits.to_be_bytes());
        mix(&mut self.effects, &other.effects.to_be_bytes());
        mix(&mut self.prose, &other.prose.to_be_bytes());
        mix(&mut self.row_order, &other.row_order.to_be_bytes());
        mix(&mut self.final_rows, &other.final_rows.to_be_bytes());
    }

    fn add_batch(&mut self, batch: &Batch) {
        let sum = &mut self.commits;
        if let Some(fence) = &batch.fence {
            mix(sum, format!("{:?}", fence.key).as_bytes());
            mix_literals(sum, &format!("{:?}", fence.expected_version));
            mix(sum, &fence.value);
        }
        for write in &batch.writes {
            mix(sum, format!("{}", write.key).as_bytes());
            match &write.value {
                Some(value) => mix(sum, value),
                None => mix(sum, &[0]),
            }
            match &write.precondition {
                Precondition::Absent => mix(sum, &[1]),
                Precondition::VersionIs(version) => mix_literals(sum, &format!("{version:?}")),
                Precondition::Unchecked => mix(sum, &[2]),
            }
        }
    }

    fn add_literals(&mut self, text: &str) {
        for literal in literals(text) {
            let sum = if literal.contains(' ') { &mut self.prose } else { &mut self.effects };
            mix(sum, literal.as_bytes());
        }
    }
}

impl std::fmt::Display for BehaviourDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { commits, effects, prose, row_order, final_rows } = self;
        write!(f, "commits {commits:016x}  effects {effects:016x}  prose {prose:016x}  ")?;
        write!(f, "row order {row_order:016x}  final rows {final_rows:016x}")
    }
}

pub(crate) fn mix(sum: &mut u64, bytes: &[u8]) {
    for byte in (bytes.len() as u64).to_be_bytes().iter().chain(bytes) {
        *sum = (*sum ^ u64::from(*byte)).wrapping_mul(PRIME);
    }
}

fn mix_literals(sum: &mut u64, text: &str) {
    literals(text).for_each(|literal| mix(sum, literal.as_bytes()));
}

/// The numbers, booleans and quoted strings in `Debug` output, without the names between them.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let first = rest.chars().next()?;
            let length = match first {
                '"' => quoted(rest),
                first if first.is_alphanumeric() || first == '_' => word(rest),
                first => first.len_utf8(),
            };
            let (literal, after) = rest.split_at(length);
            rest = after;
            if first == '"' || first.is_ascii_digit() || literal == "true" || literal == "false" {
                return Some(literal);
            }
        }
    })
}

fn word(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// The length of the quoted string at the beginning.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_ignore_names_and_keep_values() {
        let all = |text| literals(text).collect::<Vec<_>>();
        assert_eq!(all(r#"Old { run: 7, text: "a \"b\" c", on: true }"#), ["7", r#""a \"b\" c""#, "true"]);
        assert_eq!(
            all(r#"New { id: RunId(7), text: "a \"b\" c", on: true }"#),
            all(r#"X(7, "a \"b\" c", true)"#)
        );
        assert_ne!(all("A(7)"), all("A(8)"));
    }
}
