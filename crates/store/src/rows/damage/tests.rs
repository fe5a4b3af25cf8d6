//! Rows around damage of any place and width, on a store that reads ahead as engines do.

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
        Poll::Pending => panic!("the reference store answers at once"),
    }
}

fn store(keys: impl IntoIterator<Item = Vec<u8>>) -> MemoryStore {
    let store = MemoryStore::default();
    for key in keys {
        store.commit_now(&partition(), &Batch::checked().create(Key::new(key), b"value".to_vec()));
    }
    store
}

/// Every row that can be read, and every place that cannot.
fn walk(store: &MemoryStore, scan: Scan) -> (Vec<Key>, Vec<Damage>) {
    let (mut keys, mut places, mut next) = (Vec::new(), Vec::new(), Some(scan));
    while let Some(scan) = next {
        let Passed { page, damage } = ready(scan_past_damage(store, &partition(), scan)).unwrap();
        assert!(damage.is_none() || page.rows.is_empty());
        keys.extend(page.rows.into_iter().map(|row| row.key));
        places.extend(damage);
        next = page.next;
    }
    (keys, places)
}

fn numbered(number: u32) -> Vec<u8> {
    let mut key = b"table".to_vec();
    key.extend(number.to_be_bytes());
    key
}

#[test]
fn what_is_around_damage_is_read_and_the_damage_is_told_once_with_its_ends() {
    let store = store((0..3_000).map(numbered));
    store.damage(&partition(), Key::new(numbered(1_400)), Key::new(numbered(1_450)));
    let (keys, places) = walk(&store, Scan::prefix(b"table").at_most(500));
    let whole = (0..1_400).chain(1_451..3_000).map(|number| Key::new(numbered(number)));
    assert_eq!(keys, whole.collect::<Vec<_>>());
    let [place] = places.as_slice() else { panic!("{places:?}") };
    assert_eq!(place.until, Bound::Included(Key::new(numbered(1_450))));
    let Bound::Excluded(from) = &place.from else { panic!("{place:?}") };
    assert!((Key::new(numbered(1_399))..Key::new(numbered(1_400))).contains(from), "{from}");
}

#[test]
fn a_place_has_the_same_end_whichever_scan_meets_it() {
    let store = store((0..100).map(numbered));
    store.damage(&partition(), Key::new(numbered(40)), Key::new(numbered(60)));
    let range = |from, until| Scan::range(Key::new(numbered(from)), Key::new(numbered(until)));
    for scan in [Scan::all(), range(0, 50), range(45, 55), range(50, 100), range(60, 61)] {
        let (_, places) = walk(&store, scan);
        let ends: Vec<_> = places.into_iter().map(|place| place.until).collect();
        assert_eq!(ends, [Bound::Included(Key::new(numbered(60)))]);
    }
    assert_eq!(walk(&store, range(0, 39)).1, []);
    assert_eq!(walk(&store, range(61, 100)).1, []);
}

#[test]
fn damage_up_to_the_very_end_ends_the_scan() {
    let store = store((0..10).map(numbered));
    store.damage(&partition(), Key::new(numbered(5)), Key::new([0xff; 400]));
    let (keys, places) = walk(&store, Scan::all());
    assert_eq!((keys.len(), places.len()), (5, 1));
    assert_eq!(places.first().map(|place| place.until.clone()), Some(Bound::Unbounded));
}

proptest! {
    #[test]
    fn no_readable_row_is_lost_and_no_damaged_one_given(
        keys in prop::collection::btree_set(prop::collection::vec(0..4u8, 0..5), 0..40),
        ends in [prop::collection::vec(0..4u8, 0..5), prop::collection::vec(0..4u8, 0..5)],
        rows_max in 1..5usize,
    ) {
        let [from, until] = ends.map(Key::new);
        let (from, until) = if from <= until { (from, until) } else { (until, from) };
        let store = store(keys.iter().cloned());
        store.damage(&partition(), from.clone(), until.clone());
        let (found, _) = walk(&store, Scan::all().at_most(rows_max));
        let keys = keys.into_iter().map(Key::new);
        prop_assert_eq!(found, keys.filter(|key| !(&from..=&until).contains(&key)).collect::<Vec<_>>());
    }

    #[test]
    fn places_sort_as_their_keys(one: Vec<u8>, other: Vec<u8>) {
        let place = |key: &Vec<u8>| Place::before(&Bound::Excluded(Key::new(key.clone())));
        prop_assert_eq!(place(&one).0.cmp(&place(&other).0), one.cmp(&other));
        prop_assert_eq!(place(&one).key(), Key::new(one));
    }
}
