//! Scans and order: rows are returned in the order of their keys' bytes, page by page, each once, whatever is written
//! meanwhile.

use std::ops::Bound;

use super::BackendUnderTest;
use super::harness::{
    ConformanceResult, all_rows, checks, committed, ensure, head_of, key, partition, with_rows,
};
use crate::rows::{Batch, Key, Partition, PrivateRows, RowVersion, Scan, StoreLimits};

checks!(
    keys_sort_by_their_bytes_both_ways,
    bounds_are_respected,
    a_prefix_finds_its_keys_and_no_others,
    pages_join_to_the_whole,
    a_page_is_bounded_in_bytes,
    an_impossible_range_is_empty,
    rows_that_stay_are_seen_once_while_others_are_written_and_deleted,
);

/// Awkward keys: empty, prefixes of each other, zeros, all ones, not UTF-8.
fn awkward() -> Vec<Key> {
    let keys: [&[u8]; 14] = [
        b"",
        b"\0",
        b"\0\0",
        b"\0\x01",
        b"\x01",
        b"a",
        b"a\0",
        b"a\0b",
        b"aa",
        b"b",
        b"\x7f",
        b"\x80",
        b"\xff",
        b"\xff\xff",
    ];
    keys.into_iter().map(Key::new).collect()
}

async fn with_keys<S: BackendUnderTest>(
    store: &S::Store,
    partition: &Partition,
    keys: &[Key],
) -> ConformanceResult<RowVersion> {
    let mut batch = Batch::fenced(Key::new(*b"\xfehead"), None, vec![]);
    // The last first: the order must come from the keys, not from the time of the writes.
    for key in keys.iter().rev() {
        batch = batch.put(key.clone(), key.as_bytes().to_vec());
    }
    head_of(&committed(store.commit(partition, batch).await)?)
}

async fn keys_of<S: BackendUnderTest>(
    store: &S::Store,
    partition: &Partition,
    scan: Scan,
) -> ConformanceResult<Vec<Key>> {
    let rows = all_rows(store, partition, scan).await?;
    Ok(rows.into_iter().map(|row| row.key).filter(|key| key.as_bytes() != b"\xfehead").collect())
}

async fn keys_sort_by_their_bytes_both_ways<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let keys = awkward();
    with_keys::<S>(&store, &p, &keys).await?;
    let forwards = keys_of::<S>(&store, &p, Scan::all()).await?;
    ensure!(forwards == keys, "a forward scan returned the keys {forwards:?}");
    let mut backwards = keys_of::<S>(&store, &p, Scan::all().backwards()).await?;
    backwards.reverse();
    ensure!(backwards == keys, "a backward scan returned the reverse of {backwards:?}");
    for key in &keys {
        let row = store.read(&p, key).await?;
        ensure!(row.is_some_and(|row| row.value == key.as_bytes()), "{key:?} was read with another value");
    }
    Ok(())
}

async fn bounds_are_respected<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let keys = awkward();
    with_keys::<S>(&store, &p, &keys).await?;
    let bounds = |key: &Key| [Bound::Included(key.clone()), Bound::Excluded(key.clone()), Bound::Unbounded];
    for from in &keys {
        for until in keys.iter().step_by(3) {
            for (from, until) in bounds(from).into_iter().flat_map(|a| bounds(until).map(|b| (a.clone(), b)))
            {
                let range = (from.clone(), until.clone());
                let expected: Vec<Key> = keys
                    .iter()
                    .filter(|key| std::ops::RangeBounds::contains(&range, *key))
                    .cloned()
                    .collect();
                let scan = Scan::between(from, until);
                let mut backwards = keys_of::<S>(&store, &p, scan.clone().backwards()).await?;
                backwards.reverse();
                ensure!(
                    keys_of::<S>(&store, &p, scan).await? == expected,
                    "{range:?} forwards has other keys"
                );
                ensure!(backwards == expected, "{range:?} backwards has other keys");
            }
        }
    }
    Ok(())
}

async fn a_prefix_finds_its_keys_and_no_others<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let keys = awkward();
    with_keys::<S>(&store, &p, &keys).await?;
    for prefix in [&b"a"[..], b"a\0", b"\0", b"\xff", b"\xff\xff", b"nothing"] {
        let expected: Vec<Key> =
            keys.iter().filter(|key| key.as_bytes().starts_with(prefix)).cloned().collect();
        let found = keys_of::<S>(&store, &p, Scan::prefix(prefix)).await?;
        ensure!(found == expected, "prefix {prefix:?} found {found:?}");
    }
    Ok(())
}

async fn pages_join_to_the_whole<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let keys: Vec<Key> = (0..50).map(|number| key(&format!("{number:03}"))).collect();
    with_keys::<S>(&store, &p, &keys).await?;
    for rows_max in [1, 2, 7, 49, 50, 51] {
        let scan = Scan::range(key("0"), key("1")).limit(rows_max);
        let page = store.scan(&p, scan.clone()).await?;
        ensure!(page.rows.len() == rows_max.min(50), "a page of {rows_max} has {} rows", page.rows.len());
        ensure!(
            page.next.is_some() == (rows_max < 50),
            "a page of {rows_max} of 50 rows reports the end wrongly"
        );
        ensure!(
            keys_of::<S>(&store, &p, scan.clone()).await? == keys,
            "pages of {rows_max} miss or repeat rows"
        );
        let mut backwards = keys_of::<S>(&store, &p, scan.backwards()).await?;
        backwards.reverse();
        ensure!(backwards == keys, "pages of {rows_max} backwards miss or repeat rows");
    }
    Ok(())
}

async fn a_page_is_bounded_in_bytes<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let size = store.capabilities().limits.value_bytes_max.min(1024 * 1024) - 64;
    for number in 0..10u8 {
        let batch = Batch::checked().create(Key::new([number]), vec![number; size]);
        committed(store.commit(&p, batch).await)?;
    }
    let page = store.scan(&p, Scan::all()).await?;
    let bytes: usize = page.rows.iter().map(|row| row.value.len()).sum();
    ensure!(bytes <= StoreLimits::SCAN_BYTES_MAX + size, "one page has {bytes} bytes");
    ensure!(all_rows(&store, &p, Scan::all()).await?.len() == 10, "pages cut by bytes miss or repeat rows");
    Ok(())
}

async fn an_impossible_range_is_empty<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    with_rows::<S>(&store, &p, &[("b", "1")]).await?;
    for scan in [
        Scan::range(key("z"), key("a")),
        Scan::range(key("b"), key("b")),
        Scan::between(Bound::Excluded(key("b")), Bound::Excluded(key("b"))),
        Scan::all().limit(0),
        Scan::between(Bound::Unbounded, Bound::Excluded(Key::new([]))),
    ] {
        let page = store.scan(&p, scan.clone()).await?;
        ensure!(page.rows.is_empty() && page.next.is_none(), "{scan:?} has rows or a next page");
    }
    let unused = store.scan(&partition("unused"), Scan::all()).await?;
    ensure!(unused.rows.is_empty() && unused.next.is_none(), "a partition that was never written has rows");
    Ok(())
}

/// Between pages, rows are inserted before and after the position of the scan, and deleted. The rows that stay are seen
/// exactly once, in order.
async fn rows_that_stay_are_seen_once_while_others_are_written_and_deleted<S: BackendUnderTest>(
    subject: &S,
) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let stay: Vec<Key> = (0..60).step_by(2).map(|number| key(&format!("{number:03}"))).collect();
    let mut version = with_keys::<S>(&store, &p, &stay).await?;
    for backwards in [false, true] {
        let mut scan = Scan::range(key("0"), key("1")).limit(4);
        if backwards {
            scan = scan.backwards();
        }
        let mut seen: Vec<Key> = Vec::new();
        let mut next = Some(scan);
        let mut number = 1;
        while let Some(scan) = next {
            let page = store.scan(&p, scan).await?;
            seen.extend(page.rows.into_iter().map(|row| row.key));
            next = page.next;
            let mut batch = Batch::fenced(Key::new(*b"\xfehead"), Some(version), vec![]);
            batch = batch
                .put(key(&format!("{number:03}")), vec![])
                .put(key(&format!("{:03}", 59 - number)), vec![]);
            batch = batch.delete(key(&format!("{:03}", (number + 20) / 2 * 2 + 1)));
            version = head_of(&committed(store.commit(&p, batch).await)?)?;
            number = (number + 2) % 29;
        }
        let stayed: Vec<&Key> = seen.iter().filter(|key| stay.contains(key)).collect();
        let mut expected: Vec<&Key> = stay.iter().collect();
        if backwards {
            expected.reverse();
        }
        ensure!(stayed == expected, "of the rows that stayed, the scan returned {stayed:?}");
    }
    Ok(())
}
