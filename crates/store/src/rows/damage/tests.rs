//! Scans past damage of any position and width, on a store that reads ahead as engines do.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::*;
use crate::memory::MemoryStore;
use crate::rows::Batch;

fn partition() -> Partition {
    Partition::new("p").unwrap()
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the reference store never waits"),
    }
}

fn store(keys: impl IntoIterator<Item = Vec<u8>>) -> MemoryStore {
    let store = MemoryStore::default();
    for key in keys {
        store.commit_now(&partition(), &Batch::checked().create(Key::new(key), b"value".to_vec()));
    }
    store
}

/// Every row that can be read, and every range that cannot.
fn walk(store: &MemoryStore, scan: Scan) -> (Vec<Key>, Vec<DamagedRange>) {
    let mut keys = Vec::new();
    let mut ranges = Vec::new();
    let mut next = Some(scan);
    while let Some(scan) = next {
        let TolerantPage { page, damage } = ready(scan_past_damage(store, &partition(), scan)).unwrap();
        assert!(damage.is_none() || page.rows.is_empty());
        keys.extend(page.rows.into_iter().map(|row| row.key));
        ranges.extend(damage);
        next = page.next;
    }
    (keys, ranges)
}

fn numbered(number: u32) -> Vec<u8> {
    let mut key = b"table".to_vec();
    key.extend(number.to_be_bytes());
    key
}

#[test]
fn rows_around_damage_are_read_and_the_damaged_range_is_reported_once() {
    let store = store((0..3_000).map(numbered));
    store.inject_damage(&partition(), Key::new(numbered(1_400)), Key::new(numbered(1_450)));
    let (keys, ranges) = walk(&store, Scan::prefix(b"table").limit(500));
    let readable = (0..1_400).chain(1_451..3_000).map(|number| Key::new(numbered(number)));
    assert_eq!(keys, readable.collect::<Vec<_>>());
    let [range] = ranges.as_slice() else { panic!("{ranges:?}") };
    assert_eq!(range.until, Bound::Included(Key::new(numbered(1_450))));
    let Bound::Excluded(from) = &range.from else { panic!("{range:?}") };
    assert!((Key::new(numbered(1_399))..Key::new(numbered(1_400))).contains(from), "{from}");
}

#[test]
fn a_damaged_range_has_the_same_end_in_every_scan() {
    let store = store((0..100).map(numbered));
    store.inject_damage(&partition(), Key::new(numbered(40)), Key::new(numbered(60)));
    let range = |from, until| Scan::range(Key::new(numbered(from)), Key::new(numbered(until)));
    for scan in [Scan::all(), range(0, 50), range(45, 55), range(50, 100), range(60, 61)] {
        let (_, damaged) = walk(&store, scan);
        let ends: Vec<_> = damaged.into_iter().map(|range| range.until).collect();
        assert_eq!(ends, [Bound::Included(Key::new(numbered(60)))]);
    }
    assert_eq!(walk(&store, range(0, 39)).1, []);
    assert_eq!(walk(&store, range(61, 100)).1, []);
}

#[test]
fn damage_up_to_the_very_end_ends_the_scan() {
    let store = store((0..10).map(numbered));
    store.inject_damage(&partition(), Key::new(numbered(5)), Key::new([0xff; 400]));
    let (keys, ranges) = walk(&store, Scan::all());
    assert_eq!((keys.len(), ranges.len()), (5, 1));
    assert_eq!(ranges.first().map(|range| range.until.clone()), Some(Bound::Unbounded));
}

proptest! {
    #[test]
    fn no_readable_row_is_lost_and_no_damaged_row_is_returned(
        keys in prop::collection::btree_set(prop::collection::vec(0..4u8, 0..5), 0..40),
        ends in [prop::collection::vec(0..4u8, 0..5), prop::collection::vec(0..4u8, 0..5)],
        rows_max in 1..5usize,
    ) {
        let [from, until] = ends.map(Key::new);
        let (from, until) = if from <= until { (from, until) } else { (until, from) };
        let store = store(keys.iter().cloned());
        store.inject_damage(&partition(), from.clone(), until.clone());
        let (returned, _) = walk(&store, Scan::all().limit(rows_max));
        let keys = keys.into_iter().map(Key::new);
        prop_assert_eq!(returned, keys.filter(|key| !(&from..=&until).contains(&key)).collect::<Vec<_>>());
    }

    #[test]
    fn key_numbers_sort_as_their_keys(one: Vec<u8>, other: Vec<u8>) {
        let number = |key: &Vec<u8>| KeyNumber::from_bound(&Bound::Excluded(Key::new(key.clone())));
        prop_assert_eq!(number(&one).0.cmp(&number(&other).0), one.cmp(&other));
        prop_assert_eq!(number(&one).key(), Key::new(one));
    }
}
