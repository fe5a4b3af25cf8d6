//! Limits: a backend accepts everything up to its declared limits. It rejects anything above them as the caller's
//! mistake and writes nothing.

use super::BackendUnderTest;
use super::harness::{ConformanceResult, all_rows, checks, committed, ensure, fenced, head, key, partition};
use crate::rows::{Batch, BatchError, CommitOutcome, Key, PrivateRows, Scan, StoreLimits};

checks!(
    every_backend_meets_the_guaranteed_limits,
    a_full_commit_fits_and_one_row_more_does_not,
    the_largest_value_and_key_fit_and_one_byte_more_does_not,
    the_largest_commit_fits_and_one_byte_more_does_not,
    an_invalid_batch_is_rejected,
    any_bytes_are_read_back_unchanged,
);

async fn every_backend_meets_the_guaranteed_limits<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let limits = subject.fresh().await.capabilities().limits;
    let guaranteed = StoreLimits::GUARANTEED;
    let enough = limits.commit_rows_max >= guaranteed.commit_rows_max
        && limits.commit_bytes_max >= guaranteed.commit_bytes_max
        && limits.value_bytes_max >= guaranteed.value_bytes_max
        && limits.key_bytes_max >= guaranteed.key_bytes_max;
    ensure!(enough, "{limits:?} is less than {guaranteed:?}");
    Ok(())
}

async fn a_full_commit_fits_and_one_row_more_does_not<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let rows = store.capabilities().limits.commit_rows_max;
    let of = |count: usize| {
        (1..count).fold(fenced(None, 1), |batch, number| batch.put(key(&format!("{number:06}")), vec![1]))
    };
    let outcome = store.commit(&p, of(rows + 1)).await;
    ensure!(
        matches!(outcome, CommitOutcome::InvalidBatch(BatchError::TooLarge { .. })),
        "too many rows gave {outcome:?}"
    );
    ensure!(all_rows(&store, &p, Scan::all()).await?.is_empty(), "a rejected batch wrote rows");
    committed(store.commit(&p, of(rows)).await)?;
    let stored = all_rows(&store, &p, Scan::all()).await?.len();
    ensure!(stored == rows, "a full commit of {rows} rows wrote {stored}");
    Ok(())
}

async fn the_largest_value_and_key_fit_and_one_byte_more_does_not<S: BackendUnderTest>(
    subject: &S,
) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let limits = store.capabilities().limits;
    let large: Vec<u8> = (0..=u8::MAX).cycle().take(limits.value_bytes_max).collect();
    let long = Key::new(vec![0xff; limits.key_bytes_max]);
    committed(store.commit(&p, Batch::checked().create(long.clone(), large.clone())).await)?;
    let read = store.read(&p, &long).await?;
    ensure!(read.is_some_and(|row| row.value == large), "the largest value was read back changed");

    let mut larger = large;
    larger.push(0);
    for batch in [
        Batch::checked().create(key("a"), larger.clone()),
        Batch::checked().create(Key::new(vec![1; limits.key_bytes_max + 1]), vec![]),
        Batch::fenced(head(), None, larger),
    ] {
        let outcome = store.commit(&p, batch).await;
        let rejected = matches!(outcome, CommitOutcome::InvalidBatch(BatchError::TooLarge { .. }));
        ensure!(rejected, "a byte over the limit gave {outcome:?}");
    }
    Ok(())
}

async fn the_largest_commit_fits_and_one_byte_more_does_not<S: BackendUnderTest>(
    subject: &S,
) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let limits = store.capabilities().limits;
    let of = |total: usize| {
        let mut batch = Batch::checked();
        let mut left = total;
        let mut number = 0u32;
        while left > 0 {
            let name = number.to_be_bytes();
            let size = left.saturating_sub(name.len()).min(limits.value_bytes_max);
            batch = batch.create(Key::new(name), vec![7; size]);
            left = left.saturating_sub(size + name.len());
            number += 1;
        }
        batch
    };
    let outcome = store.commit(&p, of(limits.commit_bytes_max + 1)).await;
    ensure!(
        matches!(outcome, CommitOutcome::InvalidBatch(BatchError::TooLarge { .. })),
        "too many bytes gave {outcome:?}"
    );
    let batch = of(limits.commit_bytes_max);
    ensure!(
        batch.size_bytes() == limits.commit_bytes_max,
        "the check is wrong: {} bytes",
        batch.size_bytes()
    );
    committed(store.commit(&p, batch.clone()).await)?;
    for write in &batch.writes {
        let row = store.read(&p, &write.key).await?;
        ensure!(row.map(|row| row.value) == write.value, "a row of the largest commit was read back changed");
    }
    Ok(())
}

async fn an_invalid_batch_is_rejected<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let a = key("a");
    let b = key("b");
    let cases = [
        (Batch::checked(), BatchError::Empty),
        (
            Batch::checked().create(a.clone(), vec![]).create(a.clone(), vec![1]),
            BatchError::DuplicateKey { key: a.clone() },
        ),
        (fenced(None, 1).put(head(), vec![]), BatchError::DuplicateKey { key: head() }),
        (
            Batch::checked().create(a, vec![]).put(b.clone(), vec![]),
            BatchError::BlindWithoutFence { key: b.clone() },
        ),
        (Batch::checked().delete(b.clone()), BatchError::BlindWithoutFence { key: b }),
    ];
    for (batch, error) in cases {
        let outcome = store.commit(&p, batch).await;
        ensure!(
            outcome == CommitOutcome::InvalidBatch(error.clone()),
            "{error} was expected, not {outcome:?}"
        );
    }
    ensure!(all_rows(&store, &p, Scan::all()).await?.is_empty(), "a rejected batch wrote rows");
    Ok(())
}

async fn any_bytes_are_read_back_unchanged<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let values: [&[u8]; 6] =
        [b"", b"\0", &[0xff; 300], b"{\"text\":\"\\u0000\"}", b"\xc3\x28", "ünïcödé 🦀".as_bytes()];
    let batch = values
        .iter()
        .zip(0u8..)
        .fold(Batch::checked(), |batch, (value, number)| batch.create(Key::new([number]), value.to_vec()));
    committed(store.commit(&p, batch).await)?;
    for (value, number) in values.iter().zip(0u8..) {
        let row = store.read(&p, &Key::new([number])).await?;
        ensure!(row.is_some_and(|row| row.value == *value), "{value:?} was read back changed");
    }
    Ok(())
}
