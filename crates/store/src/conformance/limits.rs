//! What a backend declares it takes, it takes; one more is refused as the caller's mistake, and nothing happens.

use super::Subject;
use super::bench::{Checked, all_rows, checks, committed, ensure, fenced, head, key, partition};
use crate::rows::{Batch, BatchError, CommitOutcome, Key, Limits, PrivateRows, Scan};

checks!(
    every_backend_takes_the_least,
    a_full_commit_fits_and_one_row_more_does_not,
    the_largest_value_and_key_fit_and_one_byte_more_does_not,
    the_largest_commit_fits_and_one_byte_more_does_not,
    a_batch_that_is_none_is_refused,
    any_bytes_come_back_as_they_went,
);

async fn every_backend_takes_the_least<S: Subject>(subject: &S) -> Checked {
    let limits = subject.fresh().await.capabilities().limits;
    let least = Limits::LEAST;
    let enough = limits.commit_rows_max >= least.commit_rows_max
        && limits.commit_bytes_max >= least.commit_bytes_max
        && limits.value_bytes_max >= least.value_bytes_max
        && limits.key_bytes_max >= least.key_bytes_max;
    ensure!(enough, "{limits:?} is less than {least:?}");
    Ok(())
}

async fn a_full_commit_fits_and_one_row_more_does_not<S: Subject>(subject: &S) -> Checked {
    let (store, p) = (subject.fresh().await, partition("p"));
    let rows = store.capabilities().limits.commit_rows_max;
    let of = |count: usize| {
        (1..count).fold(fenced(None, 1), |batch, number| batch.put(key(&format!("{number:06}")), vec![1]))
    };
    let outcome = store.commit(&p, of(rows + 1)).await;
    ensure!(
        matches!(outcome, CommitOutcome::Refused(BatchError::TooLarge { .. })),
        "too many rows gave {outcome:?}"
    );
    ensure!(all_rows(&store, &p, Scan::all()).await?.is_empty(), "a refused batch wrote rows");
    committed(store.commit(&p, of(rows)).await)?;
    let there = all_rows(&store, &p, Scan::all()).await?.len();
    ensure!(there == rows, "a full commit of {rows} rows wrote {there}");
    Ok(())
}

async fn the_largest_value_and_key_fit_and_one_byte_more_does_not<S: Subject>(subject: &S) -> Checked {
    let (store, p) = (subject.fresh().await, partition("p"));
    let limits = store.capabilities().limits;
    let large: Vec<u8> = (0..=u8::MAX).cycle().take(limits.value_bytes_max).collect();
    let long = Key::new(vec![0xff; limits.key_bytes_max]);
    committed(store.commit(&p, Batch::checked().create(long.clone(), large.clone())).await)?;
    let read = store.read(&p, &long).await?;
    ensure!(read.is_some_and(|row| row.value == large), "the largest value came back otherwise");

    let mut larger = large;
    larger.push(0);
    for batch in [
        Batch::checked().create(key("a"), larger.clone()),
        Batch::checked().create(Key::new(vec![1; limits.key_bytes_max + 1]), vec![]),
        Batch::fenced(head(), None, larger),
    ] {
        let outcome = store.commit(&p, batch).await;
        let refused = matches!(outcome, CommitOutcome::Refused(BatchError::TooLarge { .. }));
        ensure!(refused, "a byte over the limit gave {outcome:?}");
    }
    Ok(())
}

async fn the_largest_commit_fits_and_one_byte_more_does_not<S: Subject>(subject: &S) -> Checked {
    let (store, p) = (subject.fresh().await, partition("p"));
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
        matches!(outcome, CommitOutcome::Refused(BatchError::TooLarge { .. })),
        "too many bytes gave {outcome:?}"
    );
    let batch = of(limits.commit_bytes_max);
    ensure!(batch.bytes() == limits.commit_bytes_max, "the check is wrong: {} bytes", batch.bytes());
    committed(store.commit(&p, batch.clone()).await)?;
    for write in &batch.writes {
        let row = store.read(&p, &write.key).await?;
        ensure!(row.map(|row| row.value) == write.value, "a row of the largest commit came back otherwise");
    }
    Ok(())
}

async fn a_batch_that_is_none_is_refused<S: Subject>(subject: &S) -> Checked {
    let (store, p) = (subject.fresh().await, partition("p"));
    let (a, b) = (key("a"), key("b"));
    let cases = [
        (Batch::checked(), BatchError::Empty),
        (
            Batch::checked().create(a.clone(), vec![]).create(a.clone(), vec![1]),
            BatchError::RepeatedKey { key: a.clone() },
        ),
        (fenced(None, 1).put(head(), vec![]), BatchError::RepeatedKey { key: head() }),
        (
            Batch::checked().create(a, vec![]).put(b.clone(), vec![]),
            BatchError::BlindWithoutFence { key: b.clone() },
        ),
        (Batch::checked().delete(b.clone()), BatchError::BlindWithoutFence { key: b }),
    ];
    for (batch, error) in cases {
        let outcome = store.commit(&p, batch).await;
        ensure!(outcome == CommitOutcome::Refused(error.clone()), "{error} was expected, not {outcome:?}");
    }
    ensure!(all_rows(&store, &p, Scan::all()).await?.is_empty(), "a refused batch wrote rows");
    Ok(())
}

async fn any_bytes_come_back_as_they_went<S: Subject>(subject: &S) -> Checked {
    let (store, p) = (subject.fresh().await, partition("p"));
    let values: [&[u8]; 6] =
        [b"", b"\0", &[0xff; 300], b"{\"text\":\"\\u0000\"}", b"\xc3\x28", "ünïcödé 🦀".as_bytes()];
    let batch = values
        .iter()
        .zip(0u8..)
        .fold(Batch::checked(), |batch, (value, number)| batch.create(Key::new([number]), value.to_vec()));
    committed(store.commit(&p, batch).await)?;
    for (value, number) in values.iter().zip(0u8..) {
        let row = store.read(&p, &Key::new([number])).await?;
        ensure!(row.is_some_and(|row| row.value == *value), "{value:?} came back otherwise");
    }
    Ok(())
}
