//! Fencing: stale writers cannot write, versions are never reused, and a conflict names exactly the rows that
//! conflicted.

use super::BackendUnderTest;
use super::harness::{
    ConformanceResult, all_rows, checks, committed, ensure, fenced, head, head_of, key, partition, text,
};
use super::harness::{join_all, with_rows};
use crate::rows::{Batch, CommitOutcome, PrivateRows, RowVersion, Scan};

checks!(
    one_of_many_first_heads_wins,
    a_stale_owner_stays_fenced,
    a_stale_head_is_reported_before_a_conflict,
    the_second_of_two_writers_of_one_version_loses,
    a_conflict_names_exactly_the_conflicting_rows,
    a_version_is_never_reused,
    a_made_up_version_is_a_conflict,
    one_of_many_creations_wins,
    every_increment_under_the_fence_counts,
);

async fn one_of_many_first_heads_wins<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let tries = (0..16).map(|number| store.commit(&p, fenced(None, number)));
    let outcomes = join_all(tries.collect()).await;
    let won = outcomes.iter().filter(|outcome| matches!(outcome, CommitOutcome::Committed(_))).count();
    let fenced_out = outcomes.iter().filter(|outcome| **outcome == CommitOutcome::Fenced).count();
    ensure!((won, fenced_out) == (1, 15), "of 16 first heads {won} won and {fenced_out} were fenced");
    Ok(())
}

async fn a_stale_owner_stays_fenced<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let old = with_rows::<S>(&store, &p, &[]).await?;
    let mut current = old.clone();
    for number in 2..6 {
        current = head_of(&committed(store.commit(&p, fenced(Some(&current), number)).await)?)?;
        let stale = store.commit(&p, fenced(Some(&old), 99).put(key("a"), vec![])).await;
        ensure!(stale == CommitOutcome::Fenced, "a stale owner got {stale:?}");
        let again = store.commit(&p, fenced(None, 99)).await;
        ensure!(again == CommitOutcome::Fenced, "a second first head got {again:?}");
    }
    let row = store.read(&p, &head()).await?;
    ensure!(
        row.is_some_and(|row| row.version == current && row.value == 5u64.to_be_bytes()),
        "the head is not that of the last commit"
    );
    Ok(())
}

async fn a_stale_head_is_reported_before_a_conflict<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let old = with_rows::<S>(&store, &p, &[("a", "1")]).await?;
    committed(store.commit(&p, fenced(Some(&old), 2)).await)?;
    let outcome = store.commit(&p, fenced(Some(&old), 3).create(key("a"), vec![])).await;
    ensure!(outcome == CommitOutcome::Fenced, "a stale head and a conflict gave {outcome:?}");
    Ok(())
}

async fn the_second_of_two_writers_of_one_version_loses<S: BackendUnderTest>(
    subject: &S,
) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let receipt = committed(store.commit(&p, Batch::checked().create(key("a"), b"0".to_vec())).await)?;
    let Some(Some(version)) = receipt.row_versions.first() else {
        return committed(CommitOutcome::Fenced).map(drop);
    };
    committed(store.commit(&p, Batch::checked().replace(key("a"), version.clone(), b"1".to_vec())).await)?;
    let second = store.commit(&p, Batch::checked().replace(key("a"), version.clone(), b"2".to_vec())).await;
    ensure!(second == CommitOutcome::Conflict(vec![key("a")]), "the second writer got {second:?}");
    let deleted = store.commit(&p, Batch::checked().delete_if_at(key("a"), version.clone())).await;
    ensure!(deleted == CommitOutcome::Conflict(vec![key("a")]), "a stale deletion got {deleted:?}");
    let read = text(&store, &p, "a").await?;
    ensure!(read.as_deref() == Some("1"), "the first writer's value became {read:?}");
    Ok(())
}

async fn a_conflict_names_exactly_the_conflicting_rows<S: BackendUnderTest>(
    subject: &S,
) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    with_rows::<S>(&store, &p, &[("a", "1"), ("b", "1"), ("c", "1")]).await?;
    let rows = all_rows(&store, &p, Scan::range(key("a"), key("d"))).await?;
    let versions: Vec<RowVersion> = rows.into_iter().map(|row| row.version).collect();
    let [a, _, c] = versions.as_slice() else {
        return Err(super::harness::CheckStop::Broken(format!(
            "three rows were written, {} scanned",
            versions.len()
        )));
    };
    let batch = Batch::checked()
        .replace(key("a"), a.clone(), vec![])
        .create(key("b"), vec![])
        .replace(key("never there"), c.clone(), vec![])
        .create(key("z"), vec![]);
    let outcome = store.commit(&p, batch).await;
    let expected = CommitOutcome::Conflict(vec![key("b"), key("never there")]);
    ensure!(outcome == expected, "two of four rows conflicted, and the store returned {outcome:?}");
    Ok(())
}

async fn a_version_is_never_reused<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let mut versions: Vec<RowVersion> = Vec::new();
    for _ in 0..5 {
        let receipt = committed(store.commit(&p, Batch::checked().create(key("a"), b"same".to_vec())).await)?;
        let Some(Some(version)) = receipt.row_versions.first() else {
            return committed(CommitOutcome::Fenced).map(drop);
        };
        ensure!(!versions.contains(version), "a row deleted and created again has an old version");
        for old in &versions {
            let late = store.commit(&p, Batch::checked().replace(key("a"), old.clone(), vec![])).await;
            ensure!(
                late == CommitOutcome::Conflict(vec![key("a")]),
                "a version of a former row got {late:?}"
            );
        }
        versions.push(version.clone());
        committed(store.commit(&p, Batch::checked().delete_if_at(key("a"), version.clone())).await)?;
        let gone = store.commit(&p, Batch::checked().replace(key("a"), version.clone(), vec![])).await;
        ensure!(gone == CommitOutcome::Conflict(vec![key("a")]), "replacing a deleted row got {gone:?}");
    }
    Ok(())
}

async fn a_made_up_version_is_a_conflict<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    with_rows::<S>(&store, &p, &[("a", "1")]).await?;
    for bytes in [&b""[..], b"\0", b"W/\"x\"", &[0xff; 64], &[0; 8]] {
        let foreign = RowVersion::from_bytes(bytes);
        let row = store.commit(&p, Batch::checked().replace(key("a"), foreign.clone(), vec![])).await;
        ensure!(row == CommitOutcome::Conflict(vec![key("a")]), "a made-up version of a row got {row:?}");
        let head = store.commit(&p, fenced(Some(&foreign), 2)).await;
        ensure!(head == CommitOutcome::Fenced, "a made-up version of the head got {head:?}");
        let absent = store.commit(&partition("q"), fenced(Some(&foreign), 2)).await;
        ensure!(absent == CommitOutcome::Fenced, "a version of a head that does not exist got {absent:?}");
    }
    Ok(())
}

async fn one_of_many_creations_wins<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let tries = (0..16u8).map(|number| store.commit(&p, Batch::checked().create(key("id"), vec![number])));
    let outcomes = join_all(tries.collect()).await;
    let won: Vec<usize> =
        (0..16).filter(|at| matches!(outcomes.get(*at), Some(CommitOutcome::Committed(_)))).collect();
    ensure!(won.len() == 1, "{} of 16 creations of one row won", won.len());
    let row = store.read(&p, &key("id")).await?;
    let winner = won.first().and_then(|at| u8::try_from(*at).ok());
    let stored = row.map(|row| row.value);
    ensure!(stored == winner.map(|winner| vec![winner]), "the row is not the winner's but {stored:?}");
    Ok(())
}

/// Concurrent owners reload when they are fenced: each success adds one, and none is lost.
async fn every_increment_under_the_fence_counts<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    with_rows::<S>(&store, &p, &[("n", "0")]).await?;
    let store = &store;
    let p = &p;
    let add = async |_| -> ConformanceResult<u32> {
        let mut added = 0;
        for _ in 0..30 {
            let Some(head) = store.read(p, &head()).await? else { continue };
            let Some(number) = text(store, p, "n").await?.and_then(|text| text.parse::<u32>().ok()) else {
                continue;
            };
            let batch = fenced(Some(&head.version), 1).put(key("n"), (number + 1).to_string().into_bytes());
            match store.commit(p, batch).await {
                CommitOutcome::Committed(_) => added += 1,
                CommitOutcome::Fenced => {}
                other => return committed(other).map(|_| 0),
            }
        }
        Ok(added)
    };
    let added: u32 = join_all((0..4).map(add).collect())
        .await
        .into_iter()
        .collect::<ConformanceResult<Vec<u32>>>()?
        .iter()
        .sum();
    let counted = text(store, p, "n").await?;
    ensure!(
        counted == Some(added.to_string()),
        "{added} increments were acknowledged, {counted:?} were counted"
    );
    Ok(())
}
