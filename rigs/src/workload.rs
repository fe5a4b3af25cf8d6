//! The rows that every commit writes, as a function: the writer and the checker share it, so the checker needs no log.
//!
//! A partition has a ring of slots. Commit `n` puts or deletes the next few slots of the ring, so the last writer of
//! each slot after any number of commits can be computed.

use std::collections::BTreeMap;

use abide_ids::Timestamp;
use abide_store::memory::SeededRng;
use abide_store::public::{CellValue, PublicKey, PublicRow};
use abide_store::rows::{Batch, Key, Partition, RowVersion};
use abide_store::tables::engine_history;

/// The number of slots in a partition's ring.
pub(crate) const SLOTS: u64 = 401;
/// How many slots one commit writes.
const PER_COMMIT: u64 = 4;
/// A public row is put after every so many commits.
const PUBLIC_EVERY: u64 = 8;
/// The number of public rows of a partition.
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
pub(crate) fn batch(partition: u64, n: u64, expect: Option<RowVersion>) -> Batch {
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

/// The content of a slot after `commits` commits.
pub(crate) fn slot_after(partition: u64, slot: u64, commits: u64) -> Option<Vec<u8>> {
    let last = commits * PER_COMMIT + PER_COMMIT - 1;
    let steps_back = (last % SLOTS + SLOTS - slot) % SLOTS;
    let step = last.checked_sub(steps_back).filter(|step| *step >= PER_COMMIT)?;
    content(partition, step / PER_COMMIT, step % PER_COMMIT)
}

/// The content that commit `n` writes into its slot number `place`: mostly small rows, some large ones, some deletions.
fn content(partition: u64, n: u64, place: u64) -> Option<Vec<u8>> {
    let mut dice = SeededRng::new((partition << 48) ^ (n << 8) ^ place);
    let length = match dice.below(50) {
        0..=9 => return None,
        10 => 4_000 + dice.below(16_000),
        _ => 20 + dice.below(800),
    };
    let mut value = n.to_be_bytes().to_vec();
    while (value.len() as u64) < length {
        value.extend_from_slice(&dice.next_u64().to_be_bytes());
    }
    Some(value)
}

/// The public row of commit `n`, if it has one.
pub(crate) fn public_row(partition: u64, n: u64) -> Option<PublicRow> {
    if !n.is_multiple_of(PUBLIC_EVERY) {
        return None;
    }
    let columns = BTreeMap::from([
        ("Engine".to_owned(), CellValue::Text(format!("engine {partition}"))),
        ("InstanceId".to_owned(), CellValue::Text(format!("instance {n}"))),
        ("Operation".to_owned(), CellValue::Text("rotate".to_owned())),
        (
            "Status".to_owned(),
            CellValue::Text(if n.is_multiple_of(16) { "Failed" } else { "Succeeded" }.to_owned()),
        ),
        ("DurationMs".to_owned(), CellValue::Integer(n.cast_signed())),
        ("Input".to_owned(), CellValue::Text("{}".to_owned())),
        ("CreatedAtUtc".to_owned(), CellValue::Time(Timestamp(n.cast_signed()))),
        ("CorrelationId".to_owned(), CellValue::Text(format!("correlation {n}"))),
    ]);
    Some(PublicRow { key: public_key(partition, public_slot(n)), revision: n, columns })
}

/// The number of the public row of commit `n`.
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
    fn the_model_matches_the_batches() {
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
