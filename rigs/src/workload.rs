//! What every commit writes, as a function: the writer and the checker share it, so the checker needs no log.
//!
//! A partition has a ring of slots. Commit `n` writes the next few slots of the ring, puts or deletions, so the last writer of each
//! slot after any number of commits can be computed.

use std::collections::BTreeMap;

use abide_store::memory::Dice;
use abide_store::public::{PublicKey, PublicRow, Value};
use abide_store::rows::{Batch, Key, Partition, Version};
use abide_store::tables::engine_history;

/// Slots of a partition's ring.
pub(crate) const SLOTS: u64 = 401;
/// Slots that one commit writes.
const PER_COMMIT: u64 = 4;
/// Every so many commits a public row is put.
const PUBLIC_EVERY: u64 = 8;
/// Public rows of a partition.
pub(crate) const PUBLIC_ROWS: u64 = 50;

pub(crate) fn partition(number: u64) -> Partition {
    Partition::new(&format!("shard/{number:04}")).unwrap_or_else(|_| unreachable!("a short name"))
}

pub(crate) fn head() -> Key {
    Key::new("head")
}

pub(crate) fn slot_key(slot: u64) -> Key {
    Key::new(format!("slot {slot:06}"))
}

/// Commit number `n` of a partition.
pub(crate) fn batch(partition: u64, n: u64, expect: Option<Version>) -> Batch {
    let mut batch = Batch::fenced(head(), expect, n.to_be_bytes().to_vec());
    for place in 0..PER_COMMIT {
        let key = slot_key((n * PER_COMMIT + place) % SLOTS);
        batch = match content(partition, n, place) {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        };
    }
    batch
}

/// What a slot holds after `commits` commits.
pub(crate) fn slot_after(partition: u64, slot: u64, commits: u64) -> Option<Vec<u8>> {
    let last = commits * PER_COMMIT + PER_COMMIT - 1;
    let steps_back = (last % SLOTS + SLOTS - slot) % SLOTS;
    let step = last.checked_sub(steps_back).filter(|step| *step >= PER_COMMIT)?;
    content(partition, step / PER_COMMIT, step % PER_COMMIT)
}

/// What commit `n` writes into its slot number `place`: mostly small rows, some large ones, some deletions.
fn content(partition: u64, n: u64, place: u64) -> Option<Vec<u8>> {
    let mut dice = Dice::new((partition << 48) ^ (n << 8) ^ place);
    let length = match dice.below(50) {
        0..=9 => return None,
        10 => 4_000 + dice.below(16_000),
        _ => 20 + dice.below(800),
    };
    let mut value = n.to_be_bytes().to_vec();
    while (value.len() as u64) < length {
        value.extend_from_slice(&dice.throw().to_be_bytes());
    }
    Some(value)
}

/// The public row that follows commit `n`, if one does.
pub(crate) fn public_row(partition: u64, n: u64) -> Option<PublicRow> {
    if !n.is_multiple_of(PUBLIC_EVERY) {
        return None;
    }
    let columns = BTreeMap::from([
        ("Engine".to_owned(), Value::Text(format!("engine {partition}"))),
        ("InstanceId".to_owned(), Value::Text(format!("instance {n}"))),
        ("Operation".to_owned(), Value::Text("rotate".to_owned())),
        (
            "Status".to_owned(),
            Value::Text(if n.is_multiple_of(16) { "Failed" } else { "Succeeded" }.to_owned()),
        ),
        ("DurationMs".to_owned(), Value::Integer(n.cast_signed())),
        ("Input".to_owned(), Value::Text("{}".to_owned())),
        ("CreatedAtUtc".to_owned(), Value::Time(n.cast_signed())),
        ("CorrelationId".to_owned(), Value::Text(format!("correlation {n}"))),
    ]);
    Some(PublicRow { key: public_key(partition, public_slot(n)), revision: n, columns })
}

/// Which public row follows commit `n`.
pub(crate) fn public_slot(n: u64) -> u64 {
    n / PUBLIC_EVERY % PUBLIC_ROWS
}

pub(crate) fn public_key(partition: u64, slot: u64) -> PublicKey {
    PublicKey { partition: format!("engine {partition}"), row: format!("row {slot:03}") }
}

pub(crate) static PUBLIC: &abide_store::public::TableSchema = &engine_history::SCHEMA;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_model_is_what_the_batches_write() {
        let mut rows: HashMap<Key, Vec<u8>> = HashMap::new();
        for n in 1..1_000 {
            for write in batch(3, n, None).writes {
                match write.value {
                    Some(value) => rows.insert(write.key, value),
                    None => rows.remove(&write.key),
                };
            }
            if n % 97 == 0 {
                for slot in 0..SLOTS {
                    assert_eq!(
                        slot_after(3, slot, n).as_ref(),
                        rows.get(&slot_key(slot)),
                        "slot {slot} after {n}"
                    );
                }
            }
        }
        assert_eq!(slot_after(0, 7, 0), None);
    }
}
