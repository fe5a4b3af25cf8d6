//! Atomicity: a batch is applied as a whole or not at all, and no reader sees half of it.

use super::BackendUnderTest;
use super::harness::{
    ConformanceResult, all_rows, checks, committed, ensure, fenced, head_of, key, partition, text,
};
use super::harness::{join_all, with_rows};
use crate::rows::{Batch, CommitOutcome, PrivateRows, Scan};

checks!(
    every_row_of_a_batch_is_applied,
    a_conflict_leaves_every_row_as_it_was,
    a_fenced_batch_leaves_every_row_as_it_was,
    puts_and_deletions_go_together,
    a_read_after_a_commit_sees_it,
    partitions_do_not_touch_each_other,
    no_reader_sees_half_a_batch,
    a_reader_that_saw_one_row_of_a_batch_sees_the_others,
);

async fn every_row_of_a_batch_is_applied<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let mut batch = fenced(None, 7);
    for number in 0..90 {
        batch = batch.put(key(&format!("row {number:02}")), vec![number; 10]);
    }
    let receipt = committed(store.commit(&p, batch).await)?;
    let rows = all_rows(&store, &p, Scan::prefix(b"row ")).await?;
    ensure!(rows.len() == 90, "90 rows were committed, {} are stored", rows.len());
    ensure!(
        receipt.row_versions.len() == 90,
        "the receipt has {} versions for 90 rows",
        receipt.row_versions.len()
    );
    for ((row, version), number) in rows.iter().zip(&receipt.row_versions).zip(0u8..) {
        ensure!(row.value == vec![number; 10], "row {number} has the value {:?}", row.value);
        ensure!(
            version.as_ref() == Some(&row.version),
            "row {number} was read at another version than in the receipt"
        );
    }
    Ok(())
}

async fn a_conflict_leaves_every_row_as_it_was<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let version = with_rows::<S>(&store, &p, &[("a", "old"), ("b", "old"), ("c", "old")]).await?;
    let before = all_rows(&store, &p, Scan::all()).await?;
    let batch = fenced(Some(&version), 2)
        .put(key("a"), b"new".to_vec())
        .create(key("b"), b"new".to_vec())
        .delete(key("c"))
        .put(key("d"), b"new".to_vec());
    let outcome = store.commit(&p, batch).await;
    ensure!(
        outcome == CommitOutcome::Conflict(vec![key("b")]),
        "creating a row that exists gave {outcome:?}"
    );
    ensure!(all_rows(&store, &p, Scan::all()).await? == before, "a conflicting batch changed rows");
    Ok(())
}

async fn a_fenced_batch_leaves_every_row_as_it_was<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let old = with_rows::<S>(&store, &p, &[("a", "old"), ("c", "old")]).await?;
    committed(store.commit(&p, fenced(Some(&old), 2)).await)?;
    let before = all_rows(&store, &p, Scan::all()).await?;
    let batch = fenced(Some(&old), 3).put(key("a"), b"new".to_vec()).delete(key("c")).put(key("d"), vec![1]);
    let outcome = store.commit(&p, batch).await;
    ensure!(outcome == CommitOutcome::Fenced, "a stale head gave {outcome:?}");
    ensure!(all_rows(&store, &p, Scan::all()).await? == before, "a fenced batch changed rows");
    Ok(())
}

async fn puts_and_deletions_go_together<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let version = with_rows::<S>(&store, &p, &[("message", "work")]).await?;
    let batch = fenced(Some(&version), 2).delete(key("message")).put(key("effect"), b"done".to_vec());
    let receipt = committed(store.commit(&p, batch.delete(key("never there"))).await)?;
    ensure!(receipt.row_versions.first() == Some(&None), "a deletion has a version");
    ensure!(text(&store, &p, "message").await?.is_none(), "a deleted row can be read");
    ensure!(
        text(&store, &p, "effect").await?.as_deref() == Some("done"),
        "a row written in the batch of a deletion is missing"
    );
    Ok(())
}

async fn a_read_after_a_commit_sees_it<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let mut version = with_rows::<S>(&store, &p, &[("a", "0")]).await?;
    for number in 1..20 {
        let value = number.to_string();
        let batch = fenced(Some(&version), number).put(key("a"), value.clone().into_bytes());
        version = head_of(&committed(store.commit(&p, batch).await)?)?;
        let read = text(&store, &p, "a").await?;
        ensure!(read.as_ref() == Some(&value), "after commit {number} a read gave {read:?}");
        let scanned = all_rows(&store, &p, Scan::prefix(b"a")).await?;
        ensure!(scanned.iter().any(|row| row.value == value.as_bytes()), "a scan misses commit {number}");
    }
    Ok(())
}

async fn partitions_do_not_touch_each_other<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let names = ["p", "p1", "p-", "P", "pp", "shard/0001", "ü"];
    for name in names {
        with_rows::<S>(&store, &partition(name), &[("a", name)]).await?;
    }
    for name in names {
        let rows = all_rows(&store, &partition(name), Scan::all()).await?;
        let values: Vec<_> =
            rows.iter().filter(|row| row.key == key("a")).map(|row| row.value.clone()).collect();
        ensure!(rows.len() == 2, "partition {name} has {} rows instead of two", rows.len());
        ensure!(values == [name.as_bytes()], "partition {name} has another's row");
    }
    Ok(())
}

/// Writers always write the same value to two rows; readers repeatedly scan both in one page.
async fn no_reader_sees_half_a_batch<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    with_rows::<S>(&store, &p, &[("x", "start"), ("y", "start")]).await?;
    let store = &store;
    let p = &p;
    let write = async |writer: u32| -> ConformanceResult {
        for round in 0..25u32 {
            let value = format!("{writer} {round}").into_bytes();
            let rows = store.scan(p, Scan::all()).await?.rows;
            let Some(head) = rows.iter().find(|row| row.key == super::harness::head()) else { continue };
            let batch = fenced(Some(&head.version), 1).put(key("x"), value.clone()).put(key("y"), value);
            let outcome = store.commit(p, batch).await;
            let fine = matches!(outcome, CommitOutcome::Committed(_) | CommitOutcome::Fenced);
            ensure!(fine, "a racing commit gave {outcome:?}");
        }
        Ok(())
    };
    let read = async || -> ConformanceResult {
        for _ in 0..100 {
            let rows = store.scan(p, Scan::range(key("x"), key("z"))).await?.rows;
            let values: Vec<_> = rows.iter().map(|row| &row.value).collect();
            let equal = matches!(values.as_slice(), [x, y] if x == y);
            ensure!(equal, "one page shows {values:?}, which were always written equal");
            yield_now().await;
        }
        Ok(())
    };
    let written = join_all((0..4).map(write).collect());
    let seen = join_all((0..2).map(|_| read()).collect());
    let (written, seen) = both(written, seen).await;
    written.into_iter().chain(seen).collect::<ConformanceResult<Vec<()>>>()?;
    // Unfenced batches too: two rows checked one by one.
    let a = committed(
        store.commit(p, Batch::checked().create(key("m"), vec![1]).create(key("n"), vec![1])).await,
    )?;
    ensure!(
        a.head_version.is_none() && a.row_versions.len() == 2,
        "a batch without a head has the receipt {a:?}"
    );
    Ok(())
}

async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let mut left = None;
    let mut right = None;
    {
        let fill_left = async { left = Some(a.await) };
        let fill_right = async { right = Some(b.await) };
        let parts: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + '_>>> =
            vec![Box::pin(fill_left), Box::pin(fill_right)];
        join_all(parts).await;
    }
    match (left, right) {
        (Some(a), Some(b)) => (a, b),
        _ => unreachable!("join_all returns when both are done"),
    }
}

/// One writer increments a counter in two rows. A reader reads one row, then the other, which must not be behind.
async fn a_reader_that_saw_one_row_of_a_batch_sees_the_others<S: BackendUnderTest>(
    subject: &S,
) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let mut version = with_rows::<S>(&store, &p, &[("x", "0"), ("y", "0")]).await?;
    let store = &store;
    let p = &p;
    let write = async {
        for number in 1..100u32 {
            let value = number.to_string().into_bytes();
            let batch = fenced(Some(&version), 1).put(key("x"), value.clone()).put(key("y"), value);
            version = head_of(&committed(store.commit(p, batch).await)?)?;
        }
        ConformanceResult::Ok(())
    };
    let count = async |name: &str| -> ConformanceResult<u32> {
        Ok(text(store, p, name).await?.and_then(|text| text.parse().ok()).unwrap_or(0))
    };
    let read = async {
        for _ in 0..200 {
            for (first, second) in [("x", "y"), ("y", "x")] {
                let seen = count(first).await?;
                let other = count(second).await?;
                ensure!(other >= seen, "{first} was read at {seen}, and after it {second} at {other}");
                yield_now().await;
            }
        }
        ConformanceResult::Ok(())
    };
    let (written, seen) = both(write, read).await;
    written.and(seen)
}

/// Lets the other future make progress.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
